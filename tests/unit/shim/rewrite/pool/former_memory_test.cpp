#include "shim/rewrite/pool/former_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/shim/rewrite/pool/capture_pool_support.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kSize = 4096;

class FormerMemoryTest : public testing::Test {
 protected:
  // A chunk with one slot at its begin.
  FormerMemory::Left left(bool abandoned = false, bool ran = false) {
    const MemoryChunk chunk = source_.get({}, kSize, 0);
    FormerMemory::Left left{{}, {chunk}, {{chunk.base, 512}}, {}, ran};
    if (abandoned) left.abandoned.push_back(chunk.base);
    return left;
  }

  AllocatingDriver driver_;
  ChunkSource source_{driver_};
  FormerMemory former_{source_};
};

TEST_F(FormerMemoryTest, WhatIsRetiredGoesWithTheSweepAfterItsMoment) {
  FormerMemory::Left one = left();
  const std::uint64_t base = one.chunks.front().base;
  const std::uint64_t before = former_.moment();
  former_.take_over(std::move(one));
  EXPECT_TRUE(former_.has_retired());
  EXPECT_TRUE(former_.has_retired_in(nullptr));
  EXPECT_TRUE(former_.has_retired_at(base));
  EXPECT_TRUE(former_.holds(base + 100));
  EXPECT_EQ(former_.retired_bytes(nullptr), kSize);
  EXPECT_TRUE(former_.sweep(before).empty()) << "it may be in use still";
  bool told = false;
  const auto gone = former_.sweep(former_.moment(), [&](const std::vector<MemorySlot>& slots) {
    told = true;
    EXPECT_EQ(slots.size(), 1u);
    EXPECT_FALSE(driver_.live.empty()) << "reported before it can be reallocated";
  });
  EXPECT_TRUE(told);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone.front().address, base);
  EXPECT_TRUE(driver_.live.empty());
  EXPECT_FALSE(former_.has_retired());
  EXPECT_FALSE(former_.holds(base));
}

TEST_F(FormerMemoryTest, AbandonedMemoryGoesToOthersOnceThatWasReported) {
  FormerMemory::Left one = left(/*abandoned=*/true);
  const std::uint64_t base = one.chunks.front().base;
  former_.take_over(std::move(one));
  EXPECT_FALSE(former_.has_retired());
  EXPECT_TRUE(former_.has_spare());
  EXPECT_FALSE(former_.take_spare({}, 512)) << "it was not reported yet";
  EXPECT_EQ(former_.reuse().size(), 1u);
  EXPECT_FALSE(former_.has_spare());
  EXPECT_FALSE(former_.take_spare({nullptr, 3}, 512)) << "it lies elsewhere";
  EXPECT_FALSE(former_.take_spare({}, kSize)) << "where something was nothing begins";
  const auto chunk = former_.take_spare({}, 512);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(former_.place_in(*chunk, 512), FormerMemory::kAlignment);
  EXPECT_TRUE(former_.begins_at(base));
  EXPECT_FALSE(former_.take_spare({}, 512)) << "it is another's";
}

TEST_F(FormerMemoryTest, SpareMemoryIsRetiredOnceAllOfItIsReleased) {
  FormerMemory::Left one = left(/*abandoned=*/true);
  const std::uint64_t base = one.chunks.front().base;
  one.abandoned.push_back(base + 1024);
  former_.take_over(std::move(one));
  EXPECT_FALSE(former_.release_abandoned(base + 512));
  EXPECT_TRUE(former_.release_abandoned(base));
  EXPECT_FALSE(former_.release_abandoned(base)) << "it is released";
  EXPECT_FALSE(former_.has_retired());
  EXPECT_TRUE(former_.release_abandoned(base + 1024));
  EXPECT_TRUE(former_.has_retired());
}

TEST_F(FormerMemoryTest, WhatTheGpuMayBeAtWorkInIsWaitedForFirst) {
  former_.take_over(left(/*abandoned=*/true, /*ran=*/true));
  EXPECT_TRUE(former_.has_retired());
  EXPECT_FALSE(former_.has_spare());
  former_.sweep(former_.moment());
  EXPECT_FALSE(driver_.live.empty()) << "the program may still release some of it";
  EXPECT_TRUE(former_.take_spare({}, 512));
}

TEST_F(FormerMemoryTest, AContextTakesItsMemoryAlong) {
  FormerMemory::Left one = left(/*abandoned=*/true);
  const std::uint64_t base = one.chunks.front().base;
  former_.take_over(std::move(one));
  former_.take_over(left());
  former_.context_ends(reinterpret_cast<CUcontext>(0x10), {});
  EXPECT_TRUE(former_.has_retired_in(nullptr)) << "another's";
  former_.context_ends(nullptr, {});
  EXPECT_FALSE(former_.has_retired_in(nullptr));
  EXPECT_FALSE(former_.begins_at(base));
  EXPECT_EQ(former_.retired_bytes(nullptr), 0u);
}

}  // namespace
}  // namespace nimble::shim
