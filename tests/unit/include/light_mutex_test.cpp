// One thread at a time, and none is left asleep.
#include "nimble/internal/process/light_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace nimble {
namespace {

TEST(LightMutex, LetsInOneAtATime) {
  constexpr int kThreads = 4, kTurns = 20000;
  LightMutex mutex;
  long turns = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::lock_guard lock(mutex);
        ++turns;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns, long{kThreads} * kTurns);
}

TEST(LightMutex, WakesThoseThatSleep) {
  LightMutex mutex;
  std::atomic<int> in{0};
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex);
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        const std::lock_guard mine(mutex);
        in.fetch_add(1);
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(in.load(), 0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(in.load(), 3);
}

TEST(LightMutex, CanBeTried) {
  LightMutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace nimble
