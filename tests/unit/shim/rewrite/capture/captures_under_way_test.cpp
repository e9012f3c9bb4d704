#include "shim/rewrite/capture/captures_under_way.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace nimble::shim {
namespace {

// A driver whose one stream captures, or does not.
class CapturingDriver final : public CallContext {
 public:
  CapturingDriver() { status = CU_STREAM_CAPTURE_STATUS_NONE; }
  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    if (std::strcmp(name, "cuStreamGetCaptureInfo_v2") != 0) return nullptr;
    return reinterpret_cast<void*>(&ask);
  }

  static inline CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  static inline cuuint64_t id = 7;

 private:
  static CUresult CUDAAPI ask(CUstream, CUstreamCaptureStatus* out, cuuint64_t* number, CUgraph* graph,
                              const CUgraphNode**, std::size_t*) {
    *out = status;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (number) *number = id;
    if (graph) *graph = reinterpret_cast<CUgraph>(0x100);
    return CUDA_SUCCESS;
  }
  FunctionInfo function_;
};

class CapturesUnderWayTest : public testing::Test {
 protected:
  static Call call(CallKind kind, std::uint64_t stream = 1) {
    Call call;
    call.kind = kind;
    call.has_stream = true;
    call.stream = {nullptr, stream};  // a default stream: nothing to ask the driver
    return call;
  }
  std::optional<CapturesUnderWay::Begun> begin(std::uint64_t id = 7) {
    captures_.begins();
    CapturingDriver::status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CapturingDriver::id = id;
    return captures_.began(call(CallKind::capture_begin), true);
  }

  CapturingDriver driver_;
  CapturesUnderWay captures_{driver_};
};

TEST_F(CapturesUnderWayTest, OneIsCountedFromItsBeginningToItsEnd) {
  EXPECT_FALSE(captures_.any());
  const auto begun = begin();
  ASSERT_TRUE(begun);
  EXPECT_EQ(begun->id, 7u);
  EXPECT_EQ(captures_.count(), 1);
  const auto found = captures_.of(call(CallKind::launch));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->active);
  const Call end = call(CallKind::capture_end);
  EXPECT_EQ(captures_.ends(end), 7u);
  EXPECT_FALSE(captures_.ended(end)) << "the driver has not ended it";
  EXPECT_EQ(captures_.count(), 1);
  EXPECT_EQ(captures_.ends(end), 7u);
  CapturingDriver::status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto ended = captures_.ended(end);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->id, 7u);
  EXPECT_FALSE(captures_.any());
  EXPECT_FALSE(captures_.of(call(CallKind::launch)));
}

TEST_F(CapturesUnderWayTest, OneThatTheDriverRefusesIsNone) {
  captures_.begins();
  EXPECT_EQ(captures_.count(), 1);
  EXPECT_FALSE(captures_.began(call(CallKind::capture_begin), false));
  EXPECT_EQ(captures_.count(), 0);
}

TEST_F(CapturesUnderWayTest, AnEndOfNoneEndsNone) {
  begin();
  CapturingDriver::status = CU_STREAM_CAPTURE_STATUS_NONE;
  const Call end = call(CallKind::capture_end);
  EXPECT_FALSE(captures_.ends(end));
  EXPECT_FALSE(captures_.ended(end));
  EXPECT_EQ(captures_.count(), 1) << "at most";
}

TEST_F(CapturesUnderWayTest, OfOneThatIsSpoiltItIsKnownWhich) {
  begin(9);
  CapturingDriver::status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  EXPECT_FALSE(captures_.of(call(CallKind::launch))->active);
  const Call end = call(CallKind::capture_end);
  EXPECT_EQ(captures_.ends(end), 9u);
  CapturingDriver::status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(captures_.ended(end)->id, 9u);
}

TEST_F(CapturesUnderWayTest, OneThatEndedUnseenIsCountedNoMore) {
  begin(7);
  begin(8);  // on the same stream
  EXPECT_EQ(captures_.count(), 1);
}

TEST_F(CapturesUnderWayTest, WhoseStreamEndsComesToNoEnd) {
  begin();
  Call ends = call(CallKind::hidden, 5);
  ends.ends = Ends::stream;
  EXPECT_TRUE(captures_.forget(ends).empty()) << "another stream";
  ends.stream.key = 1;
  const auto gone = captures_.forget(ends);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone.front().id, 7u);
  EXPECT_FALSE(captures_.any());
}

TEST_F(CapturesUnderWayTest, NoneBeginsWhileTheyAreHeldBack) {
  std::atomic<bool> has_begun{false};
  std::thread other;
  {
    const CapturesUnderWay::Hold hold(captures_);
    EXPECT_TRUE(hold);
    EXPECT_TRUE(hold.none_goes_on());
    EXPECT_FALSE(CapturesUnderWay::Hold(captures_)) << "there is one";
    other = std::thread([&] {
      captures_.begins();
      captures_.wait_until_free();
      has_begun = true;
    });
    while (hold.none_goes_on()) std::this_thread::yield();  // who holds them back sees it
    EXPECT_FALSE(has_begun);
  }
  other.join();
  EXPECT_TRUE(has_begun);
  EXPECT_TRUE(CapturesUnderWay::Hold(captures_)) << "that of the other one was none";
}

}  // namespace
}  // namespace nimble::shim
