// How much memory captures may have, and how much they have by now.
#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/shim/rewrite/pool/capture_pool_support.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kChunk = 8 * kMiB;  // that is asked of the driver where less would do

class CapturePoolBoundTest : public CapturePoolTest {
 protected:
  static CUcontext context(std::uintptr_t id) { return reinterpret_cast<CUcontext>(id); }
  bool serves(std::uint64_t capture, std::uint64_t bytes, CUcontext where = kHere) {
    return pool_.allocate(capture, {where}, 1, 0, bytes).has_value();
  }
  std::uint64_t asked_of_driver() const {
    std::uint64_t sum = 0;
    for (const auto& [address, bytes] : context_.live) sum += bytes;
    return sum;
  }

  static inline const CUcontext kHere = context(0x100), kElsewhere = context(0x200);
};

TEST_F(CapturePoolBoundTest, ACaptureGetsNoMoreThanItMay) {
  pool_.bound(8, 3 * kChunk / 2);
  EXPECT_TRUE(serves(8, kMiB));
  EXPECT_EQ(asked_of_driver(), kChunk);
  EXPECT_FALSE(serves(8, kChunk)) << "two chunks are more";
  EXPECT_TRUE(serves(8, 7 * kMiB)) << "of what it has";
  EXPECT_TRUE(serves(8, kMiB)) << "no whole chunk, but what is needed";
  EXPECT_EQ(asked_of_driver(), kChunk + kMiB);
  EXPECT_FALSE(serves(8, 4 * kMiB));
  EXPECT_TRUE(serves(8, 3 * kMiB));
  EXPECT_FALSE(serves(8, 1)) << "it has all";
  EXPECT_EQ(asked_of_driver(), 3 * kChunk / 2);
  EXPECT_TRUE(serves(9, kChunk)) << "another one may have more";
}

TEST_F(CapturePoolBoundTest, OneThatMayHaveNoneIsOfNoContext) {
  pool_.bound(8, 0);
  EXPECT_FALSE(serves(8, 1000));
  EXPECT_TRUE(context_.live.empty());
  EXPECT_FALSE(pool_.refusal(8, {kHere})) << "the driver serves it";
  EXPECT_FALSE(pool_.held_by_others(8, kHere)) << "it is decided";
  pool_.bound(8, kChunk);
  EXPECT_TRUE(serves(8, 1000, kElsewhere));
}

TEST_F(CapturePoolBoundTest, WhatACaptureUsesAgainIsNoMore) {
  pool_.bound(8, kChunk);
  const auto first = pool_.allocate(8, {kHere}, 1, 0, kChunk);
  ASSERT_TRUE(first);
  EXPECT_FALSE(serves(8, kChunk));
  EXPECT_EQ(pool_.release(first->address, 1, 8, 0), Release::done);
  EXPECT_TRUE(serves(8, kChunk));
}

TEST_F(CapturePoolBoundTest, WhatOthersHoldIsOfTheSameContext) {
  EXPECT_EQ(pool_.held_by_others(8, kHere), 0u);
  EXPECT_TRUE(serves(9, 1000));
  EXPECT_TRUE(serves(10, 3 * kChunk));
  EXPECT_TRUE(serves(11, 1000, kElsewhere));
  EXPECT_EQ(pool_.held_by_others(8, kHere), 4 * kChunk);
  EXPECT_EQ(pool_.held_by_others(8, kElsewhere), kChunk);
  EXPECT_EQ(pool_.held_by_others(8, context(0x300)), 0u);
}

TEST_F(CapturePoolBoundTest, AndSoIsTheBlockOfAPlan) {
  const auto plan = std::make_shared<CapturePlan>(CapturePlan{{{1000, 0}}, 5 * kMiB});
  pool_.began(9, Serve::planned, plan);
  EXPECT_EQ(pool_.held_by_others(8, kHere), 0u);
  EXPECT_TRUE(serves(9, 1000));
  EXPECT_EQ(pool_.held_by_others(8, kHere), 5 * kMiB);
}

TEST_F(CapturePoolBoundTest, WhatIsRetiredIsHeldUntilItGoes) {
  const auto slot = pool_.allocate(9, {kHere}, 1, 0, 1000);
  ASSERT_TRUE(slot);
  pool_.release(slot->address, 1, 9, 0);
  pool_.graphs().ended(9, graph(1));
  pool_.graphs().destroyed(graph(1));
  EXPECT_TRUE(pool_.former().has_retired_in(kHere));
  EXPECT_FALSE(pool_.former().has_retired_in(kElsewhere));
  EXPECT_EQ(pool_.held_by_others(8, kHere), kChunk);
  EXPECT_EQ(pool_.held_by_others(8, kElsewhere), 0u);
  pool_.context_ends(kHere);
  EXPECT_FALSE(pool_.former().has_retired_in(kHere));
  EXPECT_EQ(pool_.held_by_others(8, kHere), 0u);
}

TEST_F(CapturePoolBoundTest, WhoHasAskedForMemoryHasAnyOrABoundIsNotWeighed) {
  pool_.began(8, Serve::once, nullptr);
  EXPECT_FALSE(pool_.held_by_others(8, kHere)) << "it must be of here";
  EXPECT_TRUE(serves(9, 1000));
  EXPECT_FALSE(pool_.held_by_others(9, kHere)) << "a capture has memory of one kind";
  pool_.bound(10, kMiB);
  EXPECT_FALSE(pool_.held_by_others(10, kHere));
  EXPECT_TRUE(pool_.held_by_others(11, kHere));
}

}  // namespace
}  // namespace nimble::shim
