#include "shim/graphs/graph_sink.h"

#include <gtest/gtest.h>

#include <thread>

#include "shim/profile/current_call.h"
#include "tests/unit/shim/recorder_support.h"

namespace nimble::shim {
namespace {

Call event_record() {
  Call call;
  call.symbol = "cuEventRecord";
  call.kind = CallKind::event_record;
  call.traced = true;
  call.host = HostEffect::async;
  call.has_stream = true;
  call.stream = {nullptr, 1};  // a default stream: nothing to ask the driver
  return call;
}

// A probe holds others back from when a launch begins until it has ended, and what one has begun to compare would else
// be compared by the next recording.
TEST(GraphSink, ACallThatHasBegunEndsThoughTheRecordingIsFullMeanwhile) {
  static auto& context = *new FakeContext;  // as the sink, for the life of the process: its writer goes on
  GraphOptions options;
  options.limit_bytes = 1;
  options.log = [](ReplayLog, const std::string&) {};
  static auto& sink = *new GraphSink(std::move(options), context);
  Call call = event_record();
  EXPECT_FALSE(sink.before(call));
  EXPECT_STREQ(current_call().symbol, call.symbol);
  std::thread([&] {
    while (sink.report().phase != SinkPhase::aside) {
      Call other = event_record();
      EXPECT_FALSE(sink.before(other));
      sink.after(other, CUDA_SUCCESS);
      std::this_thread::yield();
    }
  }).join();
  sink.after(call, CUDA_SUCCESS);
  EXPECT_EQ(current_call().symbol, nullptr);
  EXPECT_FALSE(sink.before(call));  // which is recorded nowhere
  EXPECT_EQ(current_call().symbol, nullptr);
  sink.after(call, CUDA_SUCCESS);
}

}  // namespace
}  // namespace nimble::shim
