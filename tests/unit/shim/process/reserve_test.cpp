// What libnimble.so's C++ code gets where malloc has nothing. A program of its own, which has these operators, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "nimble/internal/process/memory_reserve.h"

namespace {

thread_local int t_refuses = 0;

}  // namespace

#ifdef NIMBLE_TEST_RESERVE
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* malloc(std::size_t bytes) noexcept { return t_refuses ? nullptr : __libc_malloc(bytes); }
#endif

namespace nimble {
namespace {

constexpr std::size_t kMostPieces = std::size_t{1} << 15;  // of 16 bytes, each with its head

// There is none for this thread. Nothing is checked meanwhile: that may take memory.
struct NoMemory {
  NoMemory() { ++t_refuses; }
  ~NoMemory() { --t_refuses; }
};

// Null where it is refused.
void* get(std::size_t bytes) {
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* get_without_memory(std::size_t bytes) {
  const NoMemory none;
  return get(bytes);
}
void* get_from_reserve(std::size_t bytes) {
  const MemoryReserve reserve;
  return get_without_memory(bytes);
}

class Reserve : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NIMBLE_TEST_RESERVE
    GTEST_SKIP() << "a sanitizer has these operators";
#endif
  }
};

TEST_F(Reserve, IsThereWhereItIsAskedFor) {
  EXPECT_EQ(get_without_memory(64), nullptr);
  void* const piece = get_from_reserve(64);
  ASSERT_NE(piece, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % alignof(std::max_align_t), 0u);
  std::memset(piece, 0x5a, 64);
  EXPECT_EQ(get_without_memory(64), nullptr) << "not any more";
  ::operator delete(piece);  // though malloc has memory again
}

TEST_F(Reserve, IsForTheThreadThatAsks) {
  const MemoryReserve outer;
  { const MemoryReserve inner; }
  EXPECT_TRUE(MemoryReserve::is_open());
  bool open = true;
  std::thread([&] { open = MemoryReserve::is_open(); }).join();
  EXPECT_FALSE(open);
}

TEST_F(Reserve, IsNotTouchedWhereMallocHasMemory) {
  void* const first = get_from_reserve(64);
  ::operator delete(first);
  const MemoryReserve reserve;
  void* const other = get(64);
  EXPECT_NE(other, first);
  ::operator delete(other);
  void* const again = get_without_memory(64);
  EXPECT_EQ(again, first);
  ::operator delete(again);
}

// A destructor that did not get any would end the process.
TEST_F(Reserve, IsThereWhileAnExceptionIsOnItsWay) {
  struct TakesSomeAtItsEnd {
    explicit TakesSomeAtItsEnd(int& ended) : ended_(ended) {}
    ~TakesSomeAtItsEnd() {
      ::operator delete(::operator new(1000));
      ++ended_;
    }
    int& ended_;
  };
  int ended = 0;
  bool caught = false;
  {
    const NoMemory none;
    try {
      const TakesSomeAtItsEnd first(ended), second(ended);
      static_cast<void>(::operator new(100));
    } catch (const std::bad_alloc&) {
      caught = true;
    }
  }
  EXPECT_TRUE(caught);
  EXPECT_EQ(ended, 2);
}

TEST_F(Reserve, WhatWasTakenLastIsUsedAgain) {
  void* const a = get_from_reserve(1000);
  void* const b = get_from_reserve(1);
  ASSERT_TRUE(a && b);
  EXPECT_GE(static_cast<unsigned char*>(b) - static_cast<unsigned char*>(a), 1000);
  ::operator delete(b);
  ::operator delete(a);
  for (int i = 0; i < 1000; ++i) {  // it would not last for all of them
    void* const next = get_from_reserve(400'000);
    ASSERT_EQ(next, a);
    ::operator delete(next);
  }
}

TEST_F(Reserve, MemoryFreedOutOfOrderIsNotReused) {
  void* const a = get_from_reserve(1000);
  void* const b = get_from_reserve(1000);
  ::operator delete(a);
  void* const c = get_from_reserve(1000);
  EXPECT_GT(c, b);
  ::operator delete(c);
  ::operator delete(b);
  void* const d = get_from_reserve(1000);
  EXPECT_EQ(d, b);
  ::operator delete(d);
}

TEST_F(Reserve, HasABound) {
  EXPECT_EQ(get_from_reserve((std::size_t{1} << 19) + 1), nullptr) << "half of it is the most that one gets";
  EXPECT_EQ(get_from_reserve(SIZE_MAX), nullptr);
  std::size_t counts[2] = {};
  for (std::size_t& count : counts) {
    void* pieces[64];
    while (count < std::size(pieces)) {
      void* const piece = get_from_reserve(std::size_t{16} << 10);
      if (!piece) break;
      pieces[count++] = piece;
    }
    for (std::size_t i = count; i > 0; --i) ::operator delete(pieces[i - 1]);
  }
  EXPECT_GT(counts[0], 50u);
  EXPECT_LT(counts[0], 64u) << "each has a head";
  EXPECT_EQ(counts[1], counts[0]);
}

// All that there is, taken by several threads at once; sorted.
std::vector<void*> taken_at_once() {
  constexpr int kThreads = 4;
  std::vector<std::vector<void*>> taken(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (std::vector<void*>& own : taken) {
    own.reserve(kMostPieces);
    threads.emplace_back([&] {
      ready += 1;
      while (ready != kThreads) std::this_thread::yield();
      while (void* const piece = get_from_reserve(16)) own.push_back(piece);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<void*> all;
  for (const std::vector<void*>& own : taken) all.insert(all.end(), own.begin(), own.end());
  std::sort(all.begin(), all.end());
  return all;
}

TEST_F(Reserve, NoTwoThreadsGetTheSame) {
  for (int round = 0; round < 20; ++round) {
    const std::vector<void*> all = taken_at_once();
    ASSERT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
    ASSERT_LE(all.size(), kMostPieces);
    ASSERT_GT(all.size(), kMostPieces / 2);
    for (auto piece = all.rbegin(); piece != all.rend(); ++piece) ::operator delete(*piece);
  }
}

// A list of this length would want more than the reserve has, to keep all of its elements until they end.
TEST_F(Reserve, JsonEndsWithoutMemory) {
  nlohmann::json value;
  for (int i = 0; i < 100'000; ++i) value["list"].push_back(nlohmann::json::array({i, i}));
  value["object"]["list"] = nlohmann::json::array({1, "text"});
  {
    const NoMemory none;
    const JsonEnds ends(value);
  }
  EXPECT_TRUE(value.is_null());
}

}  // namespace
}  // namespace nimble
