#include "replayer/order/watched_memory.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace nimble {
namespace {

constexpr std::uint64_t kCell = 256;
MemoryRange range(std::uint64_t first, std::uint64_t count) { return {first * kCell, (first + count) * kCell, true}; }

TEST(WatchedMemory, BeginsWithNothing) {
  WatchedMemory watched;
  EXPECT_TRUE(watched.is_empty());
  EXPECT_FALSE(watched.has(0, ~std::uint64_t{0}));
}

TEST(WatchedMemory, TellsWhatIsNew) {
  WatchedMemory watched;
  const MemoryRange first[] = {range(10, 2), range(20, 2)};
  Touched added = watched.add({first});
  ASSERT_EQ(added.count, 2u);
  const MemoryRange wider[] = {range(9, 12)};
  added = watched.add({wider});
  ASSERT_EQ(added.count, 2u);
  EXPECT_EQ(added.list[0], range(9, 1));
  EXPECT_EQ(added.list[1], range(12, 8));
  EXPECT_TRUE(watched.add({wider}).none());
  EXPECT_TRUE(watched.add({{}, true}).variables);
  EXPECT_TRUE(watched.add({{}, true}).none());
  EXPECT_TRUE(watched.add({{}, false, true}).anything);
  EXPECT_TRUE(watched.has_anything());
}

TEST(WatchedMemory, AnAnswerHoldsUntilItChanges) {
  WatchedMemory watched;
  const WatchedMemory::Version version = watched.version();
  EXPECT_TRUE(watched.is_latest(version));
  const MemoryRange one[] = {range(1, 1)};
  watched.add({one});
  EXPECT_FALSE(watched.is_latest(version));
  EXPECT_FALSE(watched.is_latest(version + 1));
  EXPECT_TRUE(watched.is_latest(watched.version()));
}

// Held against sets of cells. All that is added is watched, what is watched was told as new once, and what is kept
// alone remains.
TEST(WatchedMemory, CoversWhatItWasTold) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    WatchedMemory watched;
    std::set<std::uint64_t> used, told;
    std::vector<MemoryRange> lately;
    const std::uint64_t cells = seed % 2 ? 400 : 12000;  // more than there is room for
    const int most = seed % 2 ? 8 : 300;
    for (int turn = 0; turn < 30; ++turn) {
      std::vector<MemoryRange> memory;
      for (int i = static_cast<int>(random() % most); i >= 0; --i)
        memory.push_back(range(random() % cells, 1 + random() % 6));
      sort_and_merge(memory);
      const Touched added = watched.add({memory});
      for (const MemoryRange& each : memory)
        for (std::uint64_t at = each.begin; at < each.end; at += kCell) used.insert(at / kCell);
      if (added.anything) {
        for (std::uint64_t cell = 0; cell < cells + 6; ++cell) told.insert(cell);
      }
      for (const MemoryRange& each : added.ranges())
        for (std::uint64_t at = each.begin; at < each.end; at += kCell) told.insert(at / kCell);
      for (std::uint64_t cell = 0; cell < cells + 6; ++cell) {
        const bool has = watched.has(cell * kCell + 8, cell * kCell + 16);
        ASSERT_TRUE(has || !used.contains(cell)) << "seed " << seed;
        ASSERT_TRUE(!has || told.contains(cell)) << "seed " << seed;
      }
      if (turn % 7 != 0) continue;
      const std::size_t before = watched.count();
      watched.keep_only([&](const auto& keep) { keep(MemoryView{memory}); });
      ASSERT_LE(watched.count(), std::max(before, memory.size()));
      used.clear();
      told.clear();
      for (std::uint64_t cell = 0; cell < cells + 6; ++cell)
        if (watched.has(cell * kCell, cell * kCell + 1)) told.insert(cell);
      for (const MemoryRange& each : memory)
        for (std::uint64_t at = each.begin; at < each.end; at += kCell) used.insert(at / kCell);
      ASSERT_EQ(told, used) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace nimble
