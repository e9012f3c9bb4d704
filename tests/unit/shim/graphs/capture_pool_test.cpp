#include "shim/graphs/capture_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace nimble::shim {
namespace {

using Serve = CapturePool::Serve;
using Kind = CaptureMemory::Kind;

// A driver that only allocates, far apart.
class FakeContext final : public CallContext {
 public:
  FakeContext() { instance_ = this; }
  ~FakeContext() override { instance_ = nullptr; }
  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    if (!std::strcmp(name, "cuMemAlloc_v2")) return reinterpret_cast<void*>(&allocate);
    if (!std::strcmp(name, "cuMemFree_v2")) return reinterpret_cast<void*>(&free);
    return nullptr;
  }
  std::map<CUdeviceptr, std::size_t> live;
  bool refuses = false;

 private:
  static CUresult CUDAAPI allocate(CUdeviceptr* out, std::size_t bytes) {
    if (instance_->refuses) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = instance_->next_;
    instance_->next_ += std::uint64_t{1} << 32;
    instance_->live[*out] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI free(CUdeviceptr address) {
    return instance_->live.erase(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  static inline FakeContext* instance_ = nullptr;
  FunctionInfo function_;
  CUdeviceptr next_ = std::uint64_t{1} << 32;
};

class CapturePoolTest : public testing::Test {
 protected:
  static CUgraph graph(std::uintptr_t id) { return reinterpret_cast<CUgraph>(id); }
  static CUgraphExec exec(std::uintptr_t id) { return reinterpret_cast<CUgraphExec>(id); }
  std::uint64_t allocate(std::uint64_t size, std::size_t node = 0, std::uint64_t stream = 1) {
    const auto slot = pool_.allocate(kCapture, stream, node, size);
    return slot ? slot->address : 0;
  }
  bool release(std::uint64_t address, std::optional<std::size_t> node = 0, std::uint64_t stream = 1) {
    return pool_.release(address, stream, kCapture, node);
  }

  static constexpr std::uint64_t kCapture = 7;
  FakeContext context_;
  CapturePool pool_{context_};
};

TEST_F(CapturePoolTest, ByItselfMemoryIsUsedAgainOnTheStreamThatReleasedIt) {
  const std::uint64_t a = allocate(1000), b = allocate(1000);
  EXPECT_NE(a, b);
  EXPECT_TRUE(release(a));
  EXPECT_TRUE(release(b));
  EXPECT_NE(allocate(1000, 0, 2), a) << "another stream is not behind the release";
  EXPECT_EQ(allocate(900), b) << "the last one is the one that is in the cache";
  const std::uint64_t large = allocate(100'000);
  EXPECT_NE(large, a);
  EXPECT_EQ(allocate(1000), a);
  EXPECT_TRUE(release(large));
  EXPECT_NE(allocate(1000), large) << "a small one does not take a large slot";
  pool_.ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->kind, Kind::again);
}

TEST_F(CapturePoolTest, WhatIsLearnedFromSharesNothing) {
  pool_.began(kCapture, Serve::once, nullptr);
  const std::uint64_t a = allocate(1000, 0);
  EXPECT_TRUE(release(a, 2));
  const std::uint64_t b = allocate(1000, 3);
  EXPECT_NE(a, b);
  pool_.ended(kCapture, graph(1));
  const CaptureMemory memory = *pool_.memory_of(graph(1));
  EXPECT_EQ(memory.kind, Kind::once);
  ASSERT_EQ(memory.events.size(), 3u);
  EXPECT_EQ(memory.events[1].node, 2u);
  EXPECT_TRUE(memory.events[1].released);
  EXPECT_EQ(memory.events[2].size, 1000u);
  EXPECT_EQ(memory.lasting, std::vector<std::uint64_t>{b});
}

CapturePlan plan() {
  CapturePlan plan;
  plan.allocations = {{1000, 0}, {1000, 1024}, {500, std::nullopt}, {800, 0}};
  plan.bytes = 2024;
  return plan;
}

TEST_F(CapturePoolTest, ByAPlanMemoryLiesWhereThatSays) {
  pool_.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
  const std::uint64_t a = allocate(1000), b = allocate(1000), lasting = allocate(500);
  EXPECT_EQ(b, a + 1024);
  EXPECT_TRUE(lasting < a || lasting >= a + 2024);
  EXPECT_TRUE(release(a));
  EXPECT_EQ(allocate(800), a);
  EXPECT_TRUE(release(a));
  EXPECT_TRUE(release(b));
  pool_.ended(kCapture, graph(1));
  const CaptureMemory memory = *pool_.memory_of(graph(1));
  EXPECT_EQ(memory.kind, Kind::once);
  ASSERT_EQ(memory.blocks.size(), 1u);
  EXPECT_EQ(memory.blocks[0].base, a);
  EXPECT_EQ(memory.blocks[0].size, 2024u);
}

TEST_F(CapturePoolTest, WhoDoesNotKeepToThePlanIsToldSo) {
  for (const std::vector<std::uint64_t>& sizes :
       {std::vector<std::uint64_t>{1000, 999}, {1000, 1000, 500}, {1000, 1000, 500, 800, 1}}) {
    CapturePool pool(context_);
    pool.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
    for (const std::uint64_t size : sizes) EXPECT_TRUE(pool.allocate(kCapture, 1, 0, size));
    pool.ended(kCapture, graph(1));
    EXPECT_EQ(pool.memory_of(graph(1))->kind, Kind::broken);
  }
}

TEST_F(CapturePoolTest, MemoryThatThePlanWantsBeforeItIsReleasedIsNotHandedOut) {
  pool_.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
  const std::uint64_t a = allocate(1000), b = allocate(1000);
  allocate(500);
  EXPECT_TRUE(release(b));
  const std::uint64_t fourth = allocate(800);
  EXPECT_TRUE(fourth >= a + 2024 || fourth + 800 <= a) << "the program still has the first one";
  EXPECT_TRUE(release(a));
  EXPECT_TRUE(release(fourth));
  pool_.ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->kind, Kind::broken);
}

TEST_F(CapturePoolTest, WhatLastsInThePlansBlockBreaksIt) {
  pool_.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
  const std::uint64_t a = allocate(1000), b = allocate(1000);
  allocate(500);
  EXPECT_TRUE(release(a));
  allocate(800);
  EXPECT_TRUE(release(b));
  pool_.ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->kind, Kind::broken) << "the last one would be overwritten by the next launch";
}

TEST_F(CapturePoolTest, APlanIsForOneStream) {
  for (const bool allocates : {true, false}) {
    CapturePool pool(context_);
    pool.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
    const auto at = [&](std::uint64_t size, std::uint64_t stream) {
      return pool.allocate(kCapture, stream, 0, size)->address;
    };
    const std::uint64_t a = at(1000, 1), b = at(1000, allocates ? 2 : 1);
    at(500, 1);
    pool.release(a, allocates ? 1 : 2, kCapture, 0);
    const std::uint64_t fourth = at(800, 1);
    EXPECT_NE(fourth, a);
    for (const std::uint64_t address : {b, fourth}) pool.release(address, 1, kCapture, 0);
    pool.ended(kCapture, graph(1));
    EXPECT_EQ(pool.memory_of(graph(1))->kind, Kind::broken);
  }
}

TEST_F(CapturePoolTest, OfAGraphThatSeveralCapturesHaveMadeNobodyKnowsTheOrder) {
  for (const std::uint64_t capture : {1, 2}) {
    pool_.began(capture, Serve::once, nullptr);
    const std::uint64_t a = pool_.allocate(capture, 1, 0, 1000)->address;
    pool_.release(a, 1, capture, 0);
    pool_.ended(capture, graph(1));
    EXPECT_EQ(pool_.memory_of(graph(1))->kind, capture == 1 ? Kind::once : Kind::broken);
  }
  EXPECT_EQ(pool_.memory_of(graph(1))->events.size(), 4u);
}

TEST_F(CapturePoolTest, AReleaseInAnotherCaptureIsNoneInThis) {
  pool_.began(kCapture, Serve::once, nullptr);
  const std::uint64_t a = allocate(1000);
  EXPECT_TRUE(pool_.release(a, 1, kCapture + 1, 5));
  pool_.ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->lasting, std::vector<std::uint64_t>{a});
}

TEST_F(CapturePoolTest, GoesOnceNobodyCanUseIt) {
  const std::uint64_t a = allocate(1000);
  pool_.ended(kCapture, graph(1));
  pool_.instantiated(graph(1), exec(2));
  pool_.instantiated(graph(1), exec(3));
  pool_.destroyed(graph(1));
  pool_.destroyed(exec(2));
  EXPECT_TRUE(release(a, std::nullopt));
  EXPECT_FALSE(pool_.has_retired());
  pool_.destroyed(exec(3));
  EXPECT_TRUE(pool_.has_retired());
  EXPECT_EQ(context_.live.size(), 1u) << "the GPU may not be done with it";
  const std::vector<CapturePool::Slot> gone = pool_.sweep();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].address, a);
  EXPECT_TRUE(context_.live.empty());
  EXPECT_FALSE(pool_.has_retired());
  EXPECT_FALSE(release(a));
}

TEST_F(CapturePoolTest, WhatWasReleasedAfterTheCaptureStays) {
  const std::uint64_t a = allocate(1000);
  pool_.ended(kCapture, graph(1));
  EXPECT_TRUE(release(a, std::nullopt)) << "each launch writes there again";
  EXPECT_TRUE(pool_.holds(a));
  EXPECT_EQ(context_.live.size(), 1u);
}

TEST_F(CapturePoolTest, OfAGraphThatIsAPartOfOthersItStaysForGood) {
  const std::uint64_t a = allocate(1000);
  pool_.ended(kCapture, graph(1));
  pool_.instantiated(graph(1), exec(2));
  pool_.shared(exec(2));
  release(a, std::nullopt);
  pool_.destroyed(graph(1));
  pool_.destroyed(exec(2));
  EXPECT_FALSE(pool_.has_retired());
}

TEST_F(CapturePoolTest, WhereTheDriverHasNoMemoryTheProgramAsksItItself) {
  context_.refuses = true;
  EXPECT_EQ(allocate(1000), 0u);
  pool_.began(8, Serve::planned, std::make_shared<CapturePlan>(plan()));
  EXPECT_FALSE(pool_.allocate(8, 1, 0, 1000));
  pool_.ended(8, graph(1));
  EXPECT_FALSE(pool_.memory_of(graph(1)));
}

}  // namespace
}  // namespace nimble::shim
