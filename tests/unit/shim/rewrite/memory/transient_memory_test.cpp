#include "shim/rewrite/memory/transient_memory.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "tests/unit/shim/rewrite/memory/fake_memory.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kBytes = 10 * Mapping::kGrain;

class TransientMemoryTest : public testing::Test {
 protected:
  TransientMemory::Shared make(CUcontext context = FakeMemory::kContext) {
    const Backing::Piece range = backing_.get(kBytes, context);
    return memory_.add(backing_.pieces(range.address, range.address + range.bytes), {0, context}, kBytes);
  }
  bool launch(const TransientMemory::Shared& part) { return memory_.launch(*part).good(); }
  void wait() { memory_.waited(FakeMemory::kContext, moments_.load()); }
  std::uint64_t give_back() { return memory_.give_back(FakeMemory::kContext) / kBytes; }
  std::uint64_t all() const { return memory_.all(FakeMemory::kContext) / kBytes; }
  std::size_t used() const { return driver_.used() / kBytes; }

  FakeMemory driver_;
  Backing backing_{driver_};
  std::atomic<std::uint64_t> moments_{0};
  TransientMemory memory_{backing_, moments_};
};

TEST_F(TransientMemoryTest, GoesWhereItIsKnownNotToBeUsedAndComesBack) {
  const auto a = make(), b = make(), never = make();
  EXPECT_TRUE(launch(a) && launch(b));
  EXPECT_EQ(all(), 3u);
  EXPECT_EQ(give_back(), 1u) << "that of who was never launched";
  wait();
  EXPECT_TRUE(launch(b));
  EXPECT_EQ(give_back(), 1u);
  EXPECT_EQ(used(), 1u);
  EXPECT_TRUE(launch(a));
  EXPECT_EQ(used(), 2u);
  EXPECT_EQ(give_back(), 0u);
  wait();
  EXPECT_EQ(give_back(), 2u);
  EXPECT_EQ(used(), 0u);
}

TEST_F(TransientMemoryTest, AWaitIsForWhatWasLaunchedBeforeItBegan) {
  const auto a = make();
  const std::uint64_t before = moments_.load();
  EXPECT_TRUE(launch(a));
  memory_.waited(FakeMemory::kContext, before);
  EXPECT_EQ(give_back(), 0u);
  memory_.waited(reinterpret_cast<CUcontext>(std::uintptr_t{0x2000}), moments_.load());
  EXPECT_EQ(give_back(), 0u) << "of another context";
  wait();
  memory_.waited(FakeMemory::kContext, before);  // which has taken longer
  EXPECT_EQ(give_back(), 1u);
}

TEST_F(TransientMemoryTest, StaysWhileALaunchIsMade) {
  const auto a = make();
  launch(a);
  wait();
  {
    const TransientMemory::Held held = memory_.launch(*a);
    wait();  // the launch has not reached the driver
    EXPECT_EQ(give_back(), 0u);
    EXPECT_EQ(used(), 1u);
  }
  EXPECT_EQ(give_back(), 0u) << "it may run";
}

TEST_F(TransientMemoryTest, IfThereIsNoneALaunchFailsAndTheNextOneRetries) {
  const auto a = make();
  give_back();
  driver_.room = 0;
  EXPECT_FALSE(launch(a));
  EXPECT_FALSE(memory_.keep(*a));
  driver_.room = SIZE_MAX;
  EXPECT_TRUE(launch(a));
}

TEST_F(TransientMemoryTest, HalfOfItIsNoneAtAll) {
  const Backing::Piece one = backing_.get(kBytes, FakeMemory::kContext),
                       other = backing_.get(kBytes, FakeMemory::kContext);
  const auto both = memory_.add({one, other}, {0, FakeMemory::kContext}, 2 * kBytes);
  memory_.give_back(FakeMemory::kContext);
  driver_.room = kBytes;
  EXPECT_FALSE(launch(both));
  EXPECT_EQ(used(), 0u);
  driver_.room = 2 * kBytes;
  EXPECT_TRUE(launch(both));
}

TEST_F(TransientMemoryTest, WhatIsKeptIsThereForGood) {
  const auto a = make(), b = make();
  give_back();
  EXPECT_TRUE(memory_.keep(*a));
  EXPECT_EQ(used(), 1u);
  wait();
  EXPECT_EQ(all(), 0u);
  EXPECT_EQ(give_back(), 0u);
}

TEST_F(TransientMemoryTest, OfAnotherContextIsAnothersMatter) {
  CUcontext const other = reinterpret_cast<CUcontext>(std::uintptr_t{0x2000});
  const auto mine = make(), its = make(other);
  EXPECT_EQ(all(), 1u);
  memory_.context_ends(FakeMemory::kContext);
  EXPECT_EQ(all(), 0u);
  EXPECT_EQ(give_back(), 0u);
  EXPECT_EQ(memory_.give_back(other), kBytes);
}

// Each has what it needs whenever it is launched, whoever takes it away meanwhile.
TEST_F(TransientMemoryTest, ThreadsMeetInOrder) {
  const auto a = make(), b = make();
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (const auto& part : {a, a, b})
    threads.emplace_back([&, part] {
      for (int i = 0; i < 300; ++i) {
        const TransientMemory::Held held = memory_.launch(*part);
        EXPECT_TRUE(held.good());
      }
    });
  std::thread takes([&] {
    while (!over) {
      wait();
      memory_.give_back(FakeMemory::kContext);
    }
  });
  for (std::thread& each : threads) each.join();
  over = true;
  takes.join();
  wait();
  give_back();
  EXPECT_EQ(used(), 0u);
}

}  // namespace
}  // namespace nimble::shim
