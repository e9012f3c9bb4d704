#include "replayer/bind/call_history.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace nimble {
namespace {

class FakeContext final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction) override { return nothing_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    if (std::string_view(name) != "cuStreamIsCapturing") return nullptr;
    return reinterpret_cast<void*>(+[](CUstream stream, CUstreamCaptureStatus* status) {
      *status = capturing.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    });
  }
  static inline std::set<CUstream> capturing;

 private:
  FunctionInfo nothing_;
};

const CUstream kStream = reinterpret_cast<CUstream>(0x100);

class CallHistoryTest : public testing::Test {
 protected:
  CallHistoryTest() { history_.prepare(); }
  void TearDown() override { FakeContext::capturing.clear(); }

  static Call call(CallKind kind, std::uint64_t address = 0, std::uint64_t size = 0) {
    Call call;
    call.kind = kind;
    call.traced = true;
    call.memory.address = address;
    call.memory.size = size;
    call.stream = {kStream, 0x100};
    return call;
  }
  void pass(const Call& call, CUresult result = CUDA_SUCCESS) {
    EXPECT_TRUE(CallHistory::matters(call));
    history_.before(call);
    history_.after(call, result);
  }
  // "base+size ..." of what is alive.
  std::string alive() {
    std::string text;
    for (const Call& call : history_.calls())
      if (call.kind == CallKind::alloc)
        text += std::to_string(call.memory.address) + "+" + std::to_string(call.memory.size) + " ";
    return text;
  }

  FakeContext context_;
  CallHistory history_{context_};
};

TEST_F(CallHistoryTest, KnowsWhatIsAllocated) {
  pass(call(CallKind::alloc, 1000, 100));
  pass(call(CallKind::alloc_async, 2000, 50));
  pass(call(CallKind::alloc, 3000, 100), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(alive(), "1000+100 2000+50 ");
  EXPECT_EQ(history_.calls()[1].memory.kind, MemoryKind::stream_ordered);
  pass(call(CallKind::free, 1000));
  pass(call(CallKind::free_async, 2000));
  EXPECT_EQ(alive(), "");
}

TEST_F(CallHistoryTest, AReleaseCountsBeforeTheDriverSeesIt) {
  pass(call(CallKind::alloc, 1000, 100));
  const Call free = call(CallKind::free, 1000);
  history_.before(free);
  // Another thread has been given the address by now.
  pass(call(CallKind::alloc, 1000, 30));
  history_.after(free, CUDA_SUCCESS);
  EXPECT_EQ(alive(), "1000+30 ");
}

TEST_F(CallHistoryTest, AFreeMayCoverMany) {
  for (const std::uint64_t at : {1000, 1100, 1200}) pass(call(CallKind::alloc, at, 100));
  pass(call(CallKind::free, 1000, 200));
  EXPECT_EQ(alive(), "1200+100 ");
}

TEST_F(CallHistoryTest, WhatANewAllocationOverlapsIsGone) {
  pass(call(CallKind::alloc, 1000, 100));
  pass(call(CallKind::alloc, 1100, 100));
  pass(call(CallKind::alloc, 1200, 100));
  pass(call(CallKind::alloc, 1050, 100));
  EXPECT_EQ(alive(), "1050+100 1200+100 ");
}

// Whether it has gone is not known for sure: the driver may refuse the end, and others may use a context yet.
TEST_F(CallHistoryTest, MemoryOutlivesItsContext) {
  Call mine = call(CallKind::alloc, 1000, 100);
  mine.context = reinterpret_cast<CUcontext>(1);
  pass(mine);
  Call end = call(CallKind::context_end);
  end.context = mine.context;
  EXPECT_FALSE(CallHistory::matters(end));
  history_.before(end);
  history_.after(end, CUDA_SUCCESS);
  ASSERT_EQ(alive(), "1000+100 ");
  EXPECT_EQ(history_.calls()[0].context, mine.context);
}

TEST_F(CallHistoryTest, HiddenWaysAreListedOnce) {
  Call texture = call(CallKind::hidden), peer = call(CallKind::hidden);
  texture.note = "a texture";
  texture.texture = true;
  peer.note = "memory of another device";
  pass(peer, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(history_.calls().empty());
  pass(texture);
  pass(texture);
  pass(peer);
  pass(call(CallKind::alloc, 1000, 100));
  const std::vector<Call> calls = history_.calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_TRUE(calls[0].texture);
  EXPECT_EQ(std::string(calls[1].note), "memory of another device");
  EXPECT_EQ(calls[2].kind, CallKind::alloc);
}

TEST_F(CallHistoryTest, CapturesLastUntilTheyEnd) {
  const Call begin = call(CallKind::capture_begin), end = call(CallKind::capture_end);
  history_.before(begin);
  EXPECT_TRUE(history_.capturing()) << "another thread must not take over in between";
  history_.after(begin, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(history_.capturing());
  FakeContext::capturing = {kStream};
  pass(begin);
  pass(call(CallKind::alloc, 1000, 100));
  pass(call(CallKind::free_async, 1000));
  EXPECT_EQ(alive(), "1000+100 ") << "a captured release releases nothing";
  pass(end);
  EXPECT_TRUE(history_.capturing()) << "the driver says that it goes on";
  FakeContext::capturing.clear();
  pass(end, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_FALSE(history_.capturing());
  pass(begin);
  Call destroy;
  destroy.ends = Ends::stream;
  destroy.stream = begin.stream;
  pass(destroy);
  EXPECT_FALSE(history_.capturing());
}

TEST_F(CallHistoryTest, RestartsWithWhatOthersHaveFollowed) {
  Call mine = call(CallKind::alloc, 1000, 100);
  mine.context = reinterpret_cast<CUcontext>(1);
  pass(mine);
  pass(call(CallKind::alloc, 2000, 100));
  history_.restart({{1000, 100, MemoryKind::device}, {5000, 8, MemoryKind::pinned}});
  EXPECT_EQ(alive(), "1000+100 5000+8 ");
  EXPECT_EQ(history_.calls()[0].context, mine.context);
  EXPECT_EQ(history_.calls()[1].memory.kind, MemoryKind::pinned);
}

TEST_F(CallHistoryTest, UnrecordedWorkFollowsTheAllocations) {
  pass(call(CallKind::alloc, 1000, 100));
  pass(call(CallKind::alloc, 2000, 100));
  const std::vector<Call> calls = history_.calls_to_record();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].kind, CallKind::alloc);
  EXPECT_EQ(calls[1].kind, CallKind::alloc);
  EXPECT_EQ(calls[2].kind, CallKind::opaque) << "before them it would say nothing of them";
  EXPECT_TRUE(calls[2].traced && calls[2].has_stream);
}

TEST_F(CallHistoryTest, OtherCallsDoNotMatter) {
  EXPECT_FALSE(CallHistory::matters(call(CallKind::launch)));
  EXPECT_FALSE(CallHistory::matters(call(CallKind::copy)));
  EXPECT_FALSE(CallHistory::matters(call(CallKind::stream_synchronize)));
}

}  // namespace
}  // namespace nimble
