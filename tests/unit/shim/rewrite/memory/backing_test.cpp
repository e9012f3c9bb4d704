#include "shim/rewrite/memory/backing.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/shim/rewrite/memory/fake_memory.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kGrain = Mapping::kGrain, kLarge = 20 * kGrain;

class BackingTest : public testing::Test {
 protected:
  Backing::Piece get(std::uint64_t bytes) { return backing_.get(bytes, FakeMemory::kContext); }

  FakeMemory driver_;
  Backing backing_{driver_};
};

TEST_F(BackingTest, ComesInPiecesAndGoesWithAllOfThem) {
  const Backing::Piece small = get(kGrain + 1), large = get(kLarge);
  EXPECT_EQ(small.bytes, 2 * kGrain);
  EXPECT_EQ(backing_.pieces(small.address, small.address + small.bytes).size(), 2u);
  EXPECT_EQ(backing_.pieces(large.address, large.address + large.bytes).size(), 1u);
  EXPECT_TRUE(backing_.pieces(small.address + 1, small.address + kGrain).empty());
  EXPECT_EQ(backing_.held(small.address), 2 * kGrain);
  EXPECT_EQ(driver_.used(), 2 * kGrain + kLarge);
  EXPECT_EQ(driver_.allowed.size(), 3u);
  EXPECT_FALSE(backing_.release(small.address + kGrain));
  EXPECT_TRUE(backing_.release(small.address));
  EXPECT_TRUE(backing_.release(large.address));
  EXPECT_FALSE(backing_.release(large.address));
  EXPECT_TRUE(driver_.physical.empty() && driver_.mapped.empty() && driver_.reserved.empty());
}

TEST_F(BackingTest, WhatGoesComesBackAtTheSamePlace) {
  const Backing::Piece range = get(kLarge), small = get(2 * kGrain);
  const std::vector<Backing::Piece> large = backing_.pieces(range.address, range.address + range.bytes);
  EXPECT_EQ(backing_.empty(large), kLarge);
  EXPECT_EQ(backing_.empty(large), 0u) << "nothing is there any more";
  EXPECT_EQ(backing_.held(range.address), 0u);
  EXPECT_EQ(driver_.used(), 2 * kGrain);
  ASSERT_TRUE(backing_.fill(large));
  EXPECT_TRUE(driver_.allowed.contains(range.address));
  EXPECT_EQ(driver_.used(), kLarge + 2 * kGrain);
  EXPECT_TRUE(backing_.fill(large));
  EXPECT_EQ(driver_.used(), kLarge + 2 * kGrain) << "it was there";
  backing_.empty(large);
  EXPECT_TRUE(backing_.release(range.address));
  EXPECT_TRUE(backing_.release(small.address));
  EXPECT_FALSE(backing_.fill(large));
  EXPECT_TRUE(driver_.physical.empty() && driver_.reserved.empty());
}

TEST_F(BackingTest, WhatCannotComeBackIsAskedForAgain) {
  const Backing::Piece range = get(3 * kGrain);
  const std::vector<Backing::Piece> pieces = backing_.pieces(range.address, range.address + range.bytes);
  backing_.empty(pieces);
  driver_.room = kGrain;
  EXPECT_FALSE(backing_.fill(pieces));
  driver_.room = SIZE_MAX;
  driver_.refuses = 1;
  EXPECT_FALSE(backing_.fill(pieces));
  EXPECT_TRUE(backing_.fill(pieces));
  EXPECT_EQ(driver_.used(), 3 * kGrain);
}

TEST_F(BackingTest, IfThereIsNoneNothingLeaks) {
  driver_.room = kGrain;
  EXPECT_EQ(get(3 * kGrain).address, 0u);
  driver_.room = SIZE_MAX;
  driver_.refuses = 1;
  EXPECT_EQ(get(3 * kGrain).address, 0u);
  driver_.supports = false;
  EXPECT_EQ(get(kGrain).address, 0u);
  EXPECT_TRUE(driver_.physical.empty() && driver_.mapped.empty() && driver_.reserved.empty());
}

TEST_F(BackingTest, MemoryOfAnEndingContextGoesAfterThat) {
  CUcontext const other = reinterpret_cast<CUcontext>(std::uintptr_t{0x2000});
  const Backing::Piece mine = get(kGrain), its = backing_.get(kGrain, other);
  backing_.context_ends(other);
  EXPECT_FALSE(backing_.release(its.address)) << "it may still be in use";
  backing_.context_ended(FakeMemory::kContext, true);
  EXPECT_EQ(driver_.used(), 2 * kGrain) << "that was another";
  backing_.context_ended(other, true);
  EXPECT_EQ(driver_.used(), kGrain);
  backing_.context_ends(FakeMemory::kContext);
  backing_.context_ended(FakeMemory::kContext, false);
  backing_.context_ended(FakeMemory::kContext, true);
  EXPECT_EQ(driver_.used(), kGrain) << "it may be in use";
  EXPECT_FALSE(backing_.release(mine.address));
}

}  // namespace
}  // namespace nimble::shim
