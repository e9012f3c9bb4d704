// What of the memory of captured graphs may go while they do not run.
#include <gtest/gtest.h>

#include "shim/rewrite/pool/capture_pool.h"
#include "tests/unit/shim/rewrite/memory/fake_memory.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kSmall = 1000, kLarge = 20 * Mapping::kGrain, kStream = 64;

class CapturePoolTransientTest : public testing::Test {
 protected:
  std::uint64_t get(std::uint64_t capture, std::uint64_t bytes) {
    const auto slot = pool_.allocate(capture, {FakeMemory::kContext, 0}, kStream, 0, bytes);
    return slot ? slot->address : 0;
  }
  void put(std::uint64_t capture, std::uint64_t address) { pool_.release(address, kStream, capture, 0); }
  // A capture that releases all but what is small.
  void capture(std::uint64_t id) {
    const std::uint64_t large = get(id, kLarge), small = get(id, kSmall);
    ASSERT_TRUE(large != 0 && small != 0);
    put(id, large);
    pool_.graphs().ended(id, graph(id));
    pool_.graphs().instantiated(graph(id), exec(id));
  }
  static CUgraph graph(std::uint64_t id) { return reinterpret_cast<CUgraph>(id * 16); }
  static CUgraphExec exec(std::uint64_t id) { return reinterpret_cast<CUgraphExec>(id * 16 + 8); }
  TransientMemory::Shared part(std::uint64_t id) {
    const auto found = pool_.graphs().transient_of(exec(id));
    EXPECT_LE(found.size(), 1u);
    return found.empty() ? nullptr : found.front();
  }
  std::uint64_t give_back() {
    pool_.transient().waited(FakeMemory::kContext, pool_.former().moment());
    return pool_.transient().give_back(FakeMemory::kContext);
  }

  FakeMemory driver_;
  CapturePool pool_{driver_};
};

TEST_F(CapturePoolTransientTest, IsWhatTheGraphReleasesItself) {
  capture(1);
  const std::size_t before = driver_.used();
  ASSERT_NE(part(1), nullptr);
  EXPECT_EQ(part(1), part(1));
  EXPECT_EQ(part(2), nullptr);
  // Another executable graph of the same capture uses the same.
  pool_.graphs().instantiated(graph(1), exec(4));
  EXPECT_EQ(part(4), part(1));
  EXPECT_GE(give_back(), kLarge);
  EXPECT_EQ(driver_.used(), Mapping::kGrain) << "but for what lasts";
  EXPECT_TRUE(pool_.transient().launch(*part(1)).good());
  EXPECT_EQ(driver_.used(), before);
}

TEST_F(CapturePoolTransientTest, WhatIsUsedAgainInTheCaptureAndLastsIsNot) {
  const std::uint64_t large = get(1, kLarge);
  put(1, large);
  ASSERT_EQ(get(1, kLarge - 512), large) << "the same once more";
  pool_.graphs().ended(1, graph(1));
  pool_.graphs().instantiated(graph(1), exec(1));
  EXPECT_EQ(part(1), nullptr);
}

TEST_F(CapturePoolTransientTest, NotOfCapturesOnRequest) {
  pool_.began(1, Serve::again, nullptr);
  const std::uint64_t plain = get(1, kLarge);
  EXPECT_EQ(plain, FakeMemory::kPlain);
  put(1, plain);
  pool_.graphs().ended(1, graph(1));
  pool_.graphs().instantiated(graph(1), exec(1));
  EXPECT_EQ(part(1), nullptr);
}

TEST_F(CapturePoolTransientTest, NotIfItIsUnknownWhenItRuns) {
  capture(1);
  capture(2);
  const std::size_t before = driver_.used();
  EXPECT_TRUE(pool_.graphs().keep(graph(1), nullptr));
  EXPECT_EQ(part(1), nullptr);
  ASSERT_NE(part(2), nullptr);
  give_back();
  EXPECT_LE(driver_.used(), before - kLarge);
  driver_.room = 0;
  EXPECT_FALSE(pool_.graphs().keep(nullptr, exec(2))) << "it has to be there";
  driver_.room = SIZE_MAX;
  EXPECT_TRUE(pool_.graphs().keep(nullptr, exec(2)));
  EXPECT_EQ(driver_.used(), before);
  EXPECT_EQ(part(2), nullptr);
  EXPECT_EQ(give_back(), 0u);
}

TEST_F(CapturePoolTransientTest, OfAGraphThatSeveralCapturesHaveMadeItIsAllOfTheirs) {
  capture(1);
  capture(2);
  pool_.graphs().instantiated(graph(1), exec(2));
  EXPECT_EQ(pool_.graphs().transient_of(exec(2)).size(), 2u);
}

TEST_F(CapturePoolTransientTest, GoesWithItsGraph) {
  capture(1);
  capture(2);
  give_back();
  for (const std::uint64_t id : {1, 2}) {
    pool_.release(pool_.memory_of(graph(id))->lasting.front(), kStream, 0, std::nullopt);
    pool_.graphs().destroyed(exec(id));
    pool_.graphs().destroyed(graph(id));
  }
  EXPECT_GT(driver_.used(), 0u);
  pool_.context_ends(FakeMemory::kContext);
  pool_.context_ended(FakeMemory::kContext, true);
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_TRUE(driver_.reserved.empty());
}

TEST_F(CapturePoolTransientTest, WhereNothingCanBeMappedMemoryIsPlain) {
  driver_.supports = false;
  EXPECT_EQ(get(1, kSmall), FakeMemory::kPlain);
  pool_.graphs().ended(1, graph(1));
  pool_.graphs().instantiated(graph(1), exec(1));
  EXPECT_EQ(part(1), nullptr);
}

}  // namespace
}  // namespace nimble::shim
