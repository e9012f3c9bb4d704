// When the thread that looks after held ops says that they have been held for too long, and when it sleeps.
#include "replayer/watchdog.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace nimble {
namespace {

constexpr std::chrono::microseconds kBound{100};
// Of looks with nothing held: those after which it goes to sleep, and one more, since ops may have come meanwhile.
constexpr int kLooksToSleep = 200, kLooksUntilAsleep = kLooksToSleep + 1;

// A watchdog lives as long as the process, and so does what it is given: none of these is ever deleted.
struct Watched {
  using Activity = std::uint64_t (*)(int look);

  explicit Watched(Activity told)
      : dog(
            kBound,
            [this, told] {
              if (!entered) ++strangers;
              const std::uint64_t answer = told(looks + 1);
              idle = answer == 0 ? idle + 1 : 0;
              ++looks;
              return answer;
            },
            [this](std::uint64_t which) {
              if (!pthread_equal(own, pthread_self())) ++strangers;
              last = which;
              ++expired;
            },
            [this] {
              own = pthread_self();
              entered = true;
            }) {}

  pthread_t own{};
  std::atomic<bool> entered{false};
  std::atomic<int> strangers{0};       // calls before its thread was entered, or on another one
  std::atomic<int> looks{0}, idle{0};  // idle: the last so many in a row had nothing
  std::atomic<int> expired{0};
  std::atomic<std::uint64_t> last{0};  // that has
  Watchdog dog;
};

// False where it is not to be expected any more.
template <class Condition>
bool comes(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition() && std::chrono::steady_clock::now() < end) sched_yield();
  return condition();
}

TEST(Watchdog, WhatIsHeldFromOneLookToTheNextExpires) {
  static std::atomic<std::uint64_t> held{5};
  static Watched& watched = *new Watched([](int) { return held.load(); });
  EXPECT_FALSE(watched.entered) << "before it is started";
  ASSERT_TRUE(watched.dog.start());
  ASSERT_TRUE(comes([] { return watched.last == 5; }));
  held = 6;
  ASSERT_TRUE(comes([] { return watched.last == 6; }));
  held = 0;
  EXPECT_EQ(watched.strangers, 0);
}

TEST(Watchdog, WhatMovesOnIsLeftAlone) {
  static std::atomic<std::uint64_t> rests{0};
  static std::atomic<bool> over{false};
  static Watched& watched = *new Watched([](int look) {
    if (over) return std::uint64_t{0};
    return rests != 0 ? rests.load() : 1000 + static_cast<std::uint64_t>(look);
  });
  ASSERT_TRUE(watched.dog.start());
  ASSERT_TRUE(comes([] { return watched.looks >= 50; }));
  EXPECT_EQ(watched.expired, 0);
  rests = 7;
  ASSERT_TRUE(comes([] { return watched.expired != 0; }));
  EXPECT_EQ(watched.last, 7u);
  over = true;
}

TEST(Watchdog, NothingIsNeverHeldForTooLong) {
  static Watched& watched = *new Watched([](int) { return std::uint64_t{0}; });
  ASSERT_TRUE(watched.dog.start());
  ASSERT_TRUE(comes([] { return watched.looks >= 50; }));
  EXPECT_EQ(watched.expired, 0);
}

TEST(Watchdog, SleepsWhereNothingIsHeldUntilItIsWoken) {
  static std::atomic<std::uint64_t> held{0};
  static Watched& watched = *new Watched([](int) { return held.load(); });
  ASSERT_TRUE(watched.dog.start());
  for (std::uint64_t nap = 1; nap <= 3; ++nap) {
    ASSERT_TRUE(comes([] { return watched.idle >= kLooksUntilAsleep; }));
    std::this_thread::sleep_for(100 * kBound);
    EXPECT_EQ(watched.idle, kLooksUntilAsleep) << "it looks in its sleep";
    held = nap;
    watched.dog.wake();
    ASSERT_TRUE(comes([&] { return watched.last == nap; }));
    held = 0;
  }
}

// Whoever held them found it awake, and has not woken it.
TEST(Watchdog, OpsThatComeWhileItFallsAsleepAreSeen) {
  static std::atomic<bool> over{false};
  static Watched& watched =
      *new Watched([](int look) { return std::uint64_t{look <= kLooksToSleep || over ? 0u : 9u}; });
  ASSERT_TRUE(watched.dog.start());
  ASSERT_TRUE(comes([] { return watched.expired != 0; }));
  EXPECT_EQ(watched.last, 9u);
  over = true;
}

}  // namespace
}  // namespace nimble
