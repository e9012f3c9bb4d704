#include "shim/rewrite/graph_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "shim/record/facts/current_call.h"
#include "tests/unit/shim/record/recorder_support.h"

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

// Asks what it is told to ask when somebody looks for a function of the driver's.
class AskedContext final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction handle) override { return driver_.function(handle); }
  StreamKind stream_kind(const StreamRef& stream) override { return driver_.stream_kind(stream); }
  void* driver_symbol(const char* name) override {
    if (asked) std::exchange(asked, nullptr)();
    return driver_.driver_symbol(name);
  }

  std::function<void()> asked;

 private:
  FakeContext driver_;
};

// It would know nothing of the capture, and take what is captured to be done.
TEST(GraphSink, NoRecordingBeginsWhereACaptureHasBegunMeanwhile) {
  static auto& context = *new AskedContext;
  GraphOptions options;
  options.limit_bytes = 1;
  options.log = [](ReplayLog, const std::string&) {};
  static auto& sink = *new GraphSink(std::move(options), context);
  while (sink.report().phase != SinkPhase::aside) {
    Call call = event_record();
    EXPECT_FALSE(sink.before(call));
    sink.after(call, CUDA_SUCCESS);
  }
  bool has_begun = false;
  context.asked = [&] {
    std::thread([&] {
      Call begin = event_record();
      begin.kind = CallKind::capture_begin;
      EXPECT_FALSE(sink.before(begin));
      has_begun = true;
    }).join();
  };
  EXPECT_TRUE(sink.learn(true));
  EXPECT_TRUE(has_begun);
  EXPECT_EQ(sink.report().phase, SinkPhase::aside);  // the one before, still
  sink.learn(false);
}

// How much has come shows in what is written, which may be long after.
TEST(GraphSink, WhetherARecordingBeginsDoesNotGoByHowFarTheWriterHasCome) {
  FakeContext context;
  for (const int calls : {10, 2000}) {
    GraphOptions options;
    options.limit_bytes = std::uint64_t{4} << 20;  // of which a sixteenth is 256 KiB
    options.trace_path = testing::TempDir() + "graph_sink_" + std::to_string(calls) + ".json";
    options.log = [](ReplayLog, const std::string&) {};
    const std::string path = options.trace_path;
    GraphSink sink(std::move(options), context);
    for (int i = 0; i < calls; ++i) {
      Call call = event_record();
      EXPECT_FALSE(sink.before(call));
      sink.after(call, CUDA_SUCCESS);
    }
    EXPECT_TRUE(sink.learn(true));  // at once
    EXPECT_TRUE(sink.learn(false));
    sink.finish();
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(nlohmann::json::accept(text)) << text.substr(text.size() - std::min<std::size_t>(text.size(), 200));
    EXPECT_EQ(text.find("cuEventRecord") != std::string::npos, calls == 10);
    std::remove(path.c_str());
  }
}

}  // namespace
}  // namespace nimble::shim
