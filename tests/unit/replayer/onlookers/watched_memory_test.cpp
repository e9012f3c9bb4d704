#include "replayer/onlookers/watched_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace nimble {
namespace {

constexpr std::uint64_t kCell = 256;
MemoryRange range(std::uint64_t first, std::uint64_t count) { return {first * kCell, (first + count) * kCell, true}; }

TEST(WatchedMemory, BeginsWithNothing) {
  WatchedMemory watched;
  EXPECT_TRUE(watched.kinds().none());
  EXPECT_FALSE(watched.has(0, ~std::uint64_t{0}));
}

TEST(WatchedMemory, MayHaveOnlyWhatIsNearToWhatItHas) {
  WatchedMemory watched;
  EXPECT_FALSE(watched.may_have(0));
  const MemoryRange two[] = {range(10, 1), range(40, 1)};
  watched.add({two});
  for (std::uint64_t cell = 0; cell < 100; ++cell)
    EXPECT_EQ(watched.may_have(cell * kCell + 7), cell == 10 || cell == 40) << cell;
  EXPECT_FALSE(watched.may_have(~std::uint64_t{0}));
  const MemoryRange far[] = {{std::uint64_t{1} << 46, (std::uint64_t{1} << 46) + (std::uint64_t{1} << 40), true}};
  watched.add({far});
  EXPECT_TRUE(watched.may_have(10 * kCell));
  EXPECT_FALSE(watched.may_have(std::uint64_t{1} << 45));
  EXPECT_TRUE(watched.may_have(far[0].end - 1));
  EXPECT_FALSE(watched.may_have(far[0].end + (std::uint64_t{1} << 37)));
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
  EXPECT_TRUE(watched.kinds().anything);
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

// An answer that was begun before a change is none: each change is seen by one who asks while it is being made, or
// after it. The thread that asks counts answers that say that they hold, and are of two states.
TEST(WatchedMemory, NoAnswerMixesTwoStates) {
  constexpr std::uint64_t kRanges = 400;
  std::vector<MemoryRange> low, high;
  for (std::uint64_t i = 0; i < kRanges; ++i) {
    low.push_back(range(4 * i, 1));
    high.push_back(range(4 * i + 2, 1));
  }
  WatchedMemory watched;
  watched.add({low});
  std::atomic<bool> done{false};
  std::atomic<int> answers{0}, wrong{0};
  std::thread asks([&] {
    while (!done.load()) {
      const WatchedMemory::Version version = watched.version();
      const bool has_low = watched.has(40 * kCell, 40 * kCell + 1);
      const bool may_have_low = watched.may_have(40 * kCell);
      bool has_high = false;
      for (std::uint64_t i = 0; i < kRanges; i += 40)
        has_high = has_high || watched.has((4 * i + 2) * kCell, (4 * i + 2) * kCell + 1);
      if (!watched.is_latest(version)) continue;
      answers.fetch_add(1);
      if (has_low == has_high || has_low != may_have_low) wrong.fetch_add(1);
    }
  });
  const auto only = [&](const std::vector<MemoryRange>& memory) {
    watched.keep_only([&](const auto& keep) { keep(MemoryView{memory}); });
  };
  for (int i = 0; answers.load() < 2000 || i < 20000; ++i) {
    only(i % 2 == 0 ? high : low);
    if (i % 16 == 0) std::this_thread::yield();
  }
  done.store(true);
  asks.join();
  EXPECT_EQ(wrong.load(), 0);
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
        for (const std::uint64_t byte : {cell * kCell, cell * kCell + 99, cell * kCell + kCell - 1})
          ASSERT_TRUE(watched.may_have(byte) || !watched.has(byte, byte + 1)) << "seed " << seed;
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
