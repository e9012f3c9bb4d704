#include "replayer/bystanders/memory_news.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace nimble {
namespace {

MemoryEvent released(std::uint64_t base) { return {false, {.base = base}}; }

class MemoryNewsTest : public testing::Test {
 protected:
  std::vector<std::uint64_t> drained() {
    std::vector<std::uint64_t> bases;
    news_->drain([&](const MemoryEvent& event) { bases.push_back(event.allocation.base); });
    return bases;
  }
  // Pushes `from`, `from` + 1 and so on until there is no room. How many went in.
  std::size_t fill(std::uint64_t from) {
    std::size_t count = 0;
    while (count < 1'000'000 && news_->push(released(from + count))) ++count;
    return count;
  }

  const std::unique_ptr<MemoryNews> news_ = std::make_unique<MemoryNews>();
};

TEST_F(MemoryNewsTest, EventsComeOutWholeAndInOrder) {
  EXPECT_TRUE(news_->push({true, {0x1000, 64, MemoryKind::pinned, false}}));
  EXPECT_TRUE(news_->push(released(0x1000)));
  std::vector<MemoryEvent> events;
  news_->drain([&](const MemoryEvent& event) { events.push_back(event); });
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].born);
  EXPECT_EQ(events[0].allocation.base, 0x1000u);
  EXPECT_EQ(events[0].allocation.size, 64u);
  EXPECT_EQ(events[0].allocation.memory, MemoryKind::pinned);
  EXPECT_FALSE(events[1].born);
  EXPECT_EQ(drained().size(), 0u) << "each event once";
}

// A full queue says so and keeps what it has; when it was read, there is room for as much again.
TEST_F(MemoryNewsTest, AFullQueueSaysSoAndLosesNothing) {
  const std::size_t room = fill(0);
  ASSERT_GT(room, 100u);
  ASSERT_LT(room, 1'000'000u);
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_FALSE(news_->push(released(1)));
    const std::vector<std::uint64_t> bases = drained();
    ASSERT_EQ(bases.size(), room);
    for (std::size_t i = 0; i < room; ++i) ASSERT_EQ(bases[i], round * room + i);
    ASSERT_EQ(fill((round + 1) * room), room);
  }
}

// A thread that is interrupted in the middle of its push must not hide the events after it: they were pushed before the
// reading began, as the reader may know.
TEST(News, AHalfWrittenEventIsWaitedFor) {
  static std::atomic<bool> writing{false}, go_on{false};
  struct Slow {
    int number = 0;
    Slow() = default;
    explicit Slow(int n) : number(n) {}
    Slow(const Slow&) = default;
    Slow& operator=(const Slow& other) {
      if (other.number == 1) {
        writing.store(true);
        while (!go_on.load()) std::this_thread::yield();
      }
      number = other.number;
      return *this;
    }
  };
  const auto news = std::make_unique<News<Slow>>();
  std::thread first([&] { news->push(Slow(1)); });
  while (!writing.load()) std::this_thread::yield();
  news->push(Slow(2));
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go_on.store(true);
  });
  std::vector<int> read;
  news->drain([&](const Slow& event) { read.push_back(event.number); });
  first.join();
  later.join();
  EXPECT_EQ(read, (std::vector<int>{1, 2}));
}

// Many threads push while one reads: each event comes out once, those of a thread in its order, and by the first
// reading that began after its push.
TEST_F(MemoryNewsTest, ManyThreadsPushWhileOneReads) {
  constexpr std::uint64_t kThreads = 4, kEach = 20'000;
  struct alignas(64) Pushed {
    std::atomic<std::uint64_t> count{0};
  };
  std::vector<Pushed> pushed(kThreads);
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        while (!news_->push(released(t << 32 | i))) std::this_thread::yield();
        pushed[t].count.store(i + 1, std::memory_order_release);
      }
      done.fetch_add(1);
    });
  }
  std::vector<std::uint64_t> seen(kThreads, 0);
  std::uint64_t disorder = 0, overlooked = 0;
  for (bool last = false; !last;) {
    last = done.load() == kThreads;
    std::vector<std::uint64_t> known(kThreads);
    for (std::uint64_t t = 0; t < kThreads; ++t) known[t] = pushed[t].count.load(std::memory_order_acquire);
    for (const std::uint64_t base : drained()) {
      const std::uint64_t t = base >> 32;
      ASSERT_LT(t, kThreads);
      disorder += (base & 0xffffffff) != seen[t]++;
    }
    for (std::uint64_t t = 0; t < kThreads; ++t) overlooked += seen[t] < known[t];
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, std::vector<std::uint64_t>(kThreads, kEach));
  EXPECT_EQ(disorder, 0u);
  EXPECT_EQ(overlooked, 0u) << "pushed before a reading began, and not read by it";
}

}  // namespace
}  // namespace nimble
