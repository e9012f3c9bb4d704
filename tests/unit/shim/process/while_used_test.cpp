#include "shim/process/while_used.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <set>
#include <thread>
#include <vector>

namespace nimble::shim {
namespace {

struct Thing {
  explicit Thing(int n) : number(n) { ++alive; }
  ~Thing() {
    number = -1;
    --alive;
  }
  std::atomic<int> number;
  static inline std::atomic<int> alive{0};
};

TEST(WhileUsed, WhatIsInUseEndsWithItsLastUser) {
  WhileUsed<Thing> things;
  EXPECT_FALSE(things.use());
  things.put(std::make_unique<Thing>(1));
  auto use = things.use();
  auto another = use.another();
  EXPECT_TRUE(things.is_present(use));
  things.put(std::make_unique<Thing>(2));
  EXPECT_FALSE(things.is_present(use));
  EXPECT_EQ(things.use()->number, 2);
  use = {};
  EXPECT_EQ(another->number, 1);
  EXPECT_EQ(Thing::alive, 2);
  another = {};
  EXPECT_EQ(Thing::alive, 1);
  things.put(nullptr);
  EXPECT_EQ(Thing::alive, 0);
  EXPECT_FALSE(things.any());
}

TEST(WhileUsed, OnlyTheOneThatIsMeantEnds) {
  WhileUsed<Thing> things;
  things.put(std::make_unique<Thing>(1));
  const auto first = things.use();
  things.put(std::make_unique<Thing>(2));
  EXPECT_FALSE(things.end(first));
  EXPECT_TRUE(things.any());
  EXPECT_TRUE(things.end(things.use()));
  EXPECT_FALSE(things.any());
}

TEST(WhileUsed, AUseThatIsKeptElsewhereIsOneOfItsOwner) {
  WhileUsed<Thing> things, others;
  things.put(std::make_unique<Thing>(1));
  DetachedUse kept = things.use().detach();
  EXPECT_FALSE(others.attach(kept));
  EXPECT_EQ(kept.place, nullptr);
  kept = things.use().detach();
  things.put(nullptr);
  EXPECT_EQ(Thing::alive, 1) << "the first was never taken back";
  EXPECT_EQ(things.attach(kept)->number, 1);
  EXPECT_FALSE(things.attach(kept));
}

// A use may go on in other threads, as many as there are, when another thing has come and gone in its place.
TEST(WhileUsed, EndsOnceWhateverItsUsers) {
  WhileUsed<Thing> things;
  for (int round = 0; round < 50; ++round) {
    things.put(std::make_unique<Thing>(1));
    auto use = things.use();
    std::vector<std::thread> threads;
    for (int i = 0; i < 20; ++i)
      threads.emplace_back([&things, mine = use.another()]() mutable {
        auto own = things.use();  // of either
        EXPECT_GT(own->number, 0);
        EXPECT_EQ(mine->number, 1);
        DetachedUse kept = std::move(mine).detach();
        EXPECT_EQ(things.attach(kept)->number, 1);
      });
    things.put(std::make_unique<Thing>(2));
    use = {};
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(Thing::alive, 1);
    things.put(nullptr);
    EXPECT_EQ(Thing::alive, 0);
  }
}

// Threads that make calls side by side do not write to the same cache line.
TEST(WhileUsed, ThreadsCountApart) {
  WhileUsed<Thing> things;
  things.put(std::make_unique<Thing>(1));
  std::array<DetachedUse, 16> uses;
  std::latch all(uses.size());
  std::vector<std::thread> threads;
  for (DetachedUse& use : uses)
    threads.emplace_back([&] {
      use = things.use().detach();
      all.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  std::set<std::uintptr_t> lines;
  for (DetachedUse& use : uses) {
    lines.insert(reinterpret_cast<std::uintptr_t>(use.place) / 64);
    EXPECT_TRUE(things.attach(use));
  }
  EXPECT_GT(lines.size(), 4u);
}

TEST(WhileUsed, NoUseMeetsOneThatHasEnded) {
  WhileUsed<Thing> things;
  things.put(std::make_unique<Thing>(1));
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!ends)
        if (const auto use = things.use(); use && use->number <= 0) ++wrong;
    });
  for (int i = 2; i < 5000; ++i) things.put(i % 3 ? std::make_unique<Thing>(i) : nullptr);
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  things.put(nullptr);
}

}  // namespace
}  // namespace nimble::shim
