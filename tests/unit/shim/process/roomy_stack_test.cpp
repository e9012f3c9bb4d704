#include "shim/process/roomy_stack.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nimble::shim {
namespace {

std::uintptr_t here() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

// Runs something on a thread whose stack has so many bytes, and tells how many of them it has used.
template <class Run>
std::size_t on_thread(std::size_t bytes, Run run) {
  constexpr int kPaint = 0x5a;
  void* const stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(stack, MAP_FAILED);
  std::memset(stack, kPaint, bytes);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, bytes);
  pthread_t thread;
  const auto body = [](void* own) -> void* {
    (*static_cast<Run*>(own))();
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, body, &run), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  const auto* const begin = static_cast<const unsigned char*>(stack);
  const std::size_t untouched = static_cast<std::size_t>(
      std::find_if(begin, begin + bytes, [](unsigned char byte) { return byte != kPaint; }) - begin);
  munmap(stack, bytes);
  return bytes - untouched;
}

[[gnu::noinline]] int deep(std::size_t bytes) {
  auto* const frame = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 512) frame[i] = static_cast<char>(i);
  return frame[0];
}

constexpr std::size_t kSmall = std::size_t{64} << 10, kLarge = std::size_t{4} << 20, kDeep = std::size_t{600} << 10;

class RoomyStack : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers need more of a stack than there is";
#endif
  }
};

TEST_F(RoomyStack, AThreadWithRoomStaysWhereItIs) {
  on_thread(kLarge, [] {
    const std::uintptr_t outside = here();
    with_room([&] { EXPECT_LT(outside - here(), 4096u); });
    EXPECT_TRUE(has_room());
  });
}

TEST_F(RoomyStack, AThreadWithoutRoomGoesElsewhereAndComesBack) {
  const std::size_t used = on_thread(kSmall, [] {
    EXPECT_FALSE(has_room());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(with_room([] {
                  EXPECT_TRUE(has_room());
                  return deep(kDeep) + with_room([] { return 7; });
                }),
                7);
    EXPECT_FALSE(has_room());
  });
  EXPECT_LT(used, kSmall / 2);
}

TEST_F(RoomyStack, WhatIsThrownPasses) {
  on_thread(kSmall, [] {
    for (int i = 0; i < 100; ++i) {
      std::string said;
      try {
        with_room([&]() -> int {
          const auto held = std::make_unique<int>(i);
          throw std::runtime_error("thrown " + std::to_string(*held));
        });
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
      EXPECT_EQ(said, "thrown " + std::to_string(i));
      EXPECT_FALSE(has_room());
    }
  });
}

TEST_F(RoomyStack, ResultsAreMoved) {
  on_thread(kSmall, [] {
    EXPECT_EQ(*with_room([] { return std::make_unique<int>(5); }), 5);
    EXPECT_EQ(with_room([] { return std::optional<std::string>(std::string(100, 'a')); }), std::string(100, 'a'));
    EXPECT_EQ(with_room([] { return std::optional<int>(); }), std::nullopt);
  });
}

TEST_F(RoomyStack, ManyThreadsAtOnceHaveOneEach) {
  constexpr int kThreads = 40;
  std::vector<pthread_t> threads(kThreads);
  pthread_barrier_t all;
  pthread_barrier_init(&all, nullptr, kThreads);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kSmall);
  const auto body = [](void* own) -> void* {
    with_room([&] {
      volatile int mine = 0;
      for (int i = 0; i < 3; ++i) {
        mine = mine + 1;
        pthread_barrier_wait(static_cast<pthread_barrier_t*>(own));
      }
      EXPECT_EQ(mine, 3);
    });
    return nullptr;
  };
  for (pthread_t& thread : threads) ASSERT_EQ(pthread_create(&thread, &attributes, body, &all), 0);
  for (pthread_t& thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  pthread_barrier_destroy(&all);
}

}  // namespace
}  // namespace nimble::shim
