#include "shim/graphs/graph_recording.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>
#include <thread>

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

Call allocation() {
  Call call;
  call.symbol = "cuMemAlloc_v2";
  call.kind = CallKind::alloc;
  call.traced = true;
  call.address = 4096;
  call.size = 64;
  return call;
}

class GraphRecordings : public testing::Test {
 protected:
  GraphRecordings() : recording_(options(), std::uint64_t{1} << 20, context_) {}
  ~GraphRecordings() override { recording_.end(); }

  static RecorderOptions options() {
    RecorderOptions options;
    options.path = "a recording";
    return options;
  }
  void tell(Call call) {
    recording_.recorder().before(call);
    recording_.recorder().after(call, CUDA_SUCCESS);
  }
  // How many of these calls have been written.
  int count(const std::string& symbol) {
    const std::string line = "\"name\":\"" + symbol + "\"";
    recording_.recorder().hurry();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (recording_.recorder().written() < recording_.recorder().pushed() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    int found = 0;
    for (const auto& piece : recording_.store().text()) {
      std::istringstream lines(*piece);
      for (std::string each; std::getline(lines, each);)  // an op has a bar of the GPU's as well, of another process
        found += each.find("\"pid\":1,") != std::string::npos && each.find(line) != std::string::npos;
    }
    return found;
  }

  FakeContext context_;
  GraphRecording recording_;
};

TEST_F(GraphRecordings, RestsBehindSoManyRecords) {
  EXPECT_TRUE(recording_.takes(event_record()));
  recording_.let_rest(2);
  tell(event_record());
  EXPECT_TRUE(recording_.takes(event_record()));
  tell(event_record());
  EXPECT_TRUE(recording_.rests());
  for (const CallKind kind : {CallKind::launch, CallKind::copy, CallKind::set, CallKind::graph_launch,
                              CallKind::event_record, CallKind::event_wait, CallKind::event_synchronize,
                              CallKind::stream_synchronize, CallKind::context_synchronize}) {
    Call call = event_record();
    call.kind = kind;
    EXPECT_FALSE(recording_.takes(call));
  }
}

// What is allocated, captured and made has to be known whenever it goes on.
TEST_F(GraphRecordings, TakesWhatIsNoWorkWhileItRests) {
  recording_.let_rest(0);
  for (const CallKind kind : {CallKind::alloc, CallKind::alloc_async, CallKind::free, CallKind::free_async,
                              CallKind::hidden, CallKind::context_end, CallKind::capture_begin, CallKind::capture_end,
                              CallKind::opaque, CallKind::host_function}) {
    Call call = event_record();
    call.kind = kind;
    EXPECT_TRUE(recording_.takes(call));
  }
  Call call = event_record();
  call.edit = GraphEdit::set_kernel;
  EXPECT_TRUE(recording_.takes(call));
  call = event_record();
  call.ends = Ends::event;
  EXPECT_TRUE(recording_.takes(call));
  call = event_record();
  call.brings_code = true;
  EXPECT_TRUE(recording_.takes(call));
}

TEST_F(GraphRecordings, HasAGapWhereItHasRested) {
  const std::string gap = CallHistory::unrecorded().symbol;
  tell(event_record());
  recording_.go_on();  // it has not rested
  EXPECT_EQ(count(gap), 0);
  recording_.let_rest(0);
  tell(allocation());
  recording_.missed(event_record());  // it rests still
  EXPECT_EQ(count(gap), 0);
  recording_.go_on();
  EXPECT_TRUE(recording_.takes(event_record()));
  EXPECT_EQ(count(gap), 1);
  recording_.missed(event_record());  // which ends only now
  EXPECT_EQ(count(gap), 2);
  recording_.missed(allocation());  // that it would have taken
  EXPECT_EQ(count(gap), 2);
  EXPECT_EQ(count("cuMemAlloc_v2"), 1);
}

}  // namespace
}  // namespace nimble::shim
