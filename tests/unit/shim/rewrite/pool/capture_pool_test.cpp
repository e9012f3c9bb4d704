#include "shim/rewrite/pool/capture_pool.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/shim/rewrite/pool/capture_pool_support.h"

namespace nimble::shim {
namespace {

TEST_F(CapturePoolTest, ByDefaultMemoryIsReusedOnTheStreamThatReleasedIt) {
  const std::uint64_t a = allocate(1000), b = allocate(1000);
  EXPECT_NE(a, b);
  EXPECT_TRUE(release(a));
  EXPECT_TRUE(release(b));
  EXPECT_NE(allocate(1000, 0, 2), a) << "another stream is not ordered after the release";
  EXPECT_EQ(allocate(900), b) << "the last one is the one that is in the cache";
  const std::uint64_t large = allocate(100'000);
  EXPECT_NE(large, a);
  EXPECT_EQ(allocate(1000), a);
  EXPECT_TRUE(release(large));
  EXPECT_NE(allocate(1000), large) << "a small one does not take a large slot";
  pool_.graphs().ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->kind, Kind::again);
}

TEST_F(CapturePoolTest, WhatIsLearnedFromSharesNothing) {
  pool_.began(kCapture, Serve::once, nullptr);
  const std::uint64_t a = allocate(1000, 0);
  EXPECT_TRUE(release(a, 2));
  const std::uint64_t b = allocate(1000, 3);
  EXPECT_NE(a, b);
  pool_.graphs().ended(kCapture, graph(1));
  const CaptureMemory memory = *pool_.memory_of(graph(1));
  EXPECT_EQ(memory.kind, Kind::once);
  ASSERT_EQ(memory.events.size(), 3u);
  EXPECT_EQ(memory.events[1].node, 2u);
  EXPECT_TRUE(memory.events[1].released);
  EXPECT_EQ(memory.events[2].size, 1000u);
  EXPECT_EQ(memory.lasting, std::vector<std::uint64_t>{b});
}

TEST_F(CapturePoolTest, MemoryIsThereFromALaunchToItsRelease) {
  const std::uint64_t gone = allocate(1000), lasting = allocate(1000);
  const auto there = [&](std::uint64_t address) { return pool_.find(address).value().there; };
  EXPECT_FALSE(there(lasting));
  EXPECT_TRUE(release(gone));
  pool_.graphs().ended(kCapture, graph(1));
  CUgraphExec const made = exec(5);
  pool_.graphs().instantiated(graph(1), made);
  EXPECT_FALSE(there(lasting));
  for (int i = 0; i < 2; ++i) {
    pool_.graphs().launched(made, 1);
    EXPECT_TRUE(there(lasting + 999));
    EXPECT_EQ(pool_.find(lasting + 10)->address, lasting);
    EXPECT_EQ(pool_.find(lasting + 10)->size, 1000u);
    EXPECT_FALSE(there(lasting + 1000));
    EXPECT_FALSE(there(gone));
    EXPECT_TRUE(release(lasting, std::nullopt));
    EXPECT_FALSE(there(lasting));
  }
  EXPECT_FALSE(pool_.find(gone - 1));
}

TEST_F(CapturePoolTest, WhoHasAskedForACaptureSeesItsMemoryAsItIs) {
  pool_.began(kCapture, Serve::once, nullptr);
  EXPECT_FALSE(pool_.find(allocate(1000)));
  EXPECT_TRUE(pool_.is_asked_for(kCapture));
}

CapturePlan plan() {
  CapturePlan plan;
  plan.allocations = {{1000, 0}, {1000, 1024}, {500, std::nullopt}, {800, 0}};
  plan.bytes = 2024;
  return plan;
}

TEST_F(CapturePoolTest, ByAPlanMemoryLiesWhereThatSays) {
  pool_.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
  const std::uint64_t a = allocate(1000), b = allocate(1000), lasting = allocate(500);
  EXPECT_EQ(b, a + 1024);
  EXPECT_TRUE(lasting < a || lasting >= a + 2024);
  EXPECT_TRUE(release(a));
  EXPECT_EQ(allocate(800), a);
  EXPECT_TRUE(release(a));
  EXPECT_TRUE(release(b));
  pool_.graphs().ended(kCapture, graph(1));
  const CaptureMemory memory = *pool_.memory_of(graph(1));
  EXPECT_EQ(memory.kind, Kind::once);
  ASSERT_EQ(memory.blocks.size(), 1u);
  EXPECT_EQ(memory.blocks[0].base, a);
  EXPECT_EQ(memory.blocks[0].size, 2024u);
}

TEST_F(CapturePoolTest, DeviationsFromThePlanAreReported) {
  for (const std::vector<std::uint64_t>& sizes :
       {std::vector<std::uint64_t>{1000, 999}, {1000, 1000, 500}, {1000, 1000, 500, 800, 1}}) {
    CapturePool pool(context_);
    pool.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
    for (const std::uint64_t size : sizes) EXPECT_TRUE(pool.allocate(kCapture, {}, 1, 0, size));
    pool.graphs().ended(kCapture, graph(1));
    EXPECT_EQ(pool.memory_of(graph(1))->kind, Kind::broken);
  }
}

TEST_F(CapturePoolTest, MemoryThatThePlanWantsBeforeItIsReleasedIsNotHandedOut) {
  pool_.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
  const std::uint64_t a = allocate(1000), b = allocate(1000);
  allocate(500);
  EXPECT_TRUE(release(b));
  const std::uint64_t fourth = allocate(800);
  EXPECT_TRUE(fourth >= a + 2024 || fourth + 800 <= a) << "the program still has the first one";
  EXPECT_TRUE(release(a));
  EXPECT_TRUE(release(fourth));
  pool_.graphs().ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->kind, Kind::broken);
}

TEST_F(CapturePoolTest, WhatLastsInThePlansBlockBreaksIt) {
  pool_.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
  const std::uint64_t a = allocate(1000), b = allocate(1000);
  allocate(500);
  EXPECT_TRUE(release(a));
  allocate(800);
  EXPECT_TRUE(release(b));
  pool_.graphs().ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->kind, Kind::broken) << "the last one would be overwritten by the next launch";
}

TEST_F(CapturePoolTest, APlanIsForOneStream) {
  for (const bool allocates : {true, false}) {
    CapturePool pool(context_);
    pool.began(kCapture, Serve::planned, std::make_shared<CapturePlan>(plan()));
    const auto at = [&](std::uint64_t size, std::uint64_t stream) {
      return pool.allocate(kCapture, {}, stream, 0, size)->address;
    };
    const std::uint64_t a = at(1000, 1), b = at(1000, allocates ? 2 : 1);
    at(500, 1);
    pool.release(a, allocates ? 1 : 2, kCapture, 0);
    const std::uint64_t fourth = at(800, 1);
    EXPECT_NE(fourth, a);
    for (const std::uint64_t address : {b, fourth}) pool.release(address, 1, kCapture, 0);
    pool.graphs().ended(kCapture, graph(1));
    EXPECT_EQ(pool.memory_of(graph(1))->kind, Kind::broken);
  }
}

TEST_F(CapturePoolTest, TheOrderOfAGraphFromSeveralCapturesIsUnknown) {
  for (const std::uint64_t capture : {1, 2}) {
    pool_.began(capture, Serve::once, nullptr);
    const std::uint64_t a = pool_.allocate(capture, {}, 1, 0, 1000)->address;
    pool_.release(a, 1, capture, 0);
    pool_.graphs().ended(capture, graph(1));
    EXPECT_EQ(pool_.memory_of(graph(1))->kind, capture == 1 ? Kind::once : Kind::broken);
  }
  EXPECT_EQ(pool_.memory_of(graph(1))->events.size(), 4u);
}

TEST_F(CapturePoolTest, AReleaseInAnotherCaptureIsNotOneInThis) {
  pool_.began(kCapture, Serve::once, nullptr);
  const std::uint64_t a = allocate(1000);
  EXPECT_EQ(pool_.release(a, 1, kCapture + 1, 5), Release::done);
  pool_.graphs().ended(kCapture, graph(1));
  EXPECT_EQ(pool_.memory_of(graph(1))->lasting, std::vector<std::uint64_t>{a});
  EXPECT_EQ(pool_.release(a, 1, kCapture + 2, 6), Release::done) << "the first one may go without a launch";
}

TEST_F(CapturePoolTest, AReleaseInAnotherCaptureIsDoneWhenThatRuns) {
  const std::uint64_t a = allocate(1000);
  pool_.graphs().ended(kCapture, graph(1));
  pool_.graphs().instantiated(graph(1), exec(2));
  EXPECT_EQ(pool_.release(a, 1, 8, 5), Release::done);
  pool_.graphs().ended(8, graph(3));
  pool_.graphs().instantiated(graph(3), exec(4));
  for (int i = 0; i < 2; ++i) {
    pool_.graphs().launched(exec(2), 1);
    pool_.graphs().launched(exec(4), 1);
    EXPECT_EQ(pool_.release(a, 1, 0, std::nullopt), Release::nothing_there);
  }
  pool_.graphs().launched(exec(2), 1);
  pool_.graphs().destroyed(graph(1));
  pool_.graphs().destroyed(exec(2));
  EXPECT_FALSE(pool_.former().has_retired()) << "it is there until the other one runs again";
  pool_.graphs().launched(exec(4), 1);
  EXPECT_TRUE(pool_.former().has_retired());
  EXPECT_TRUE(pool_.former().sweep(0).empty()) << "a wait that began before the launch was not for it";
  pool_.former().sweep(pool_.former().moment());
  EXPECT_TRUE(context_.live.empty());
}

TEST_F(CapturePoolTest, AnExecutableThatIsAnotherNowOrAPartOfOthersReleasesNothing) {
  for (const bool updated : {true, false}) {
    const auto base = static_cast<std::uintptr_t>(updated ? 10 : 20);
    const std::uint64_t a = allocate_in(base, 1000);
    pool_.graphs().ended(base, graph(base));
    pool_.graphs().instantiated(graph(base), exec(base));
    pool_.graphs().launched(exec(base), 1);
    pool_.release(a, 1, base + 1, 5);
    pool_.graphs().ended(base + 1, graph(base + 1));
    pool_.graphs().instantiated(graph(base + 1), exec(base + 1));
    updated ? pool_.graphs().updated(graph(base + 2), exec(base + 1)) : pool_.graphs().shared(exec(base + 1));
    pool_.graphs().launched(exec(base + 1), 1);
    pool_.graphs().destroyed(graph(base));
    pool_.graphs().destroyed(exec(base));
    EXPECT_FALSE(pool_.former().has_retired());
    EXPECT_TRUE(release(a, std::nullopt));
    EXPECT_TRUE(pool_.former().has_retired());
    pool_.former().sweep(pool_.former().moment());
  }
}

TEST_F(CapturePoolTest, AnExecutableThatIsUpdatedForEverHasTheMemoryOfItsLastGraphAlone) {
  for (std::uintptr_t capture = 1; capture <= 20; ++capture) {
    const std::uint64_t a = allocate_in(capture, 1000);
    EXPECT_EQ(pool_.release(a, 1, capture, 1), Release::done);
    pool_.graphs().ended(capture, graph(capture));
    capture == 1 ? pool_.graphs().instantiated(graph(capture), exec(1))
                 : pool_.graphs().updated(graph(capture), exec(1));
    pool_.graphs().updated(graph(capture), exec(1));  // from the same one again
    pool_.graphs().launched(exec(1), 1);
    EXPECT_EQ(pool_.former().has_retired(), capture > 1) << "once it cannot be launched any more";
    EXPECT_LE(context_.live.size(), 2u);
    pool_.former().sweep(pool_.former().moment());
    EXPECT_EQ(context_.live.size(), 1u);
    pool_.graphs().destroyed(graph(capture));
  }
  pool_.graphs().destroyed(exec(1));
  EXPECT_TRUE(pool_.former().has_retired());
}

TEST_F(CapturePoolTest, AnotherExecutableOfItsFormerGraphGoesOn) {
  const std::uint64_t a = allocate_in(1, 1000);
  pool_.graphs().ended(1, graph(1));
  pool_.graphs().instantiated(graph(1), exec(1));
  pool_.graphs().launched(exec(1), 1);
  pool_.release(a, 1, 2, 5);
  pool_.graphs().ended(2, graph(2));
  for (const std::uintptr_t one : {std::uintptr_t{2}, std::uintptr_t{3}})
    pool_.graphs().instantiated(graph(2), exec(one));
  pool_.graphs().updated(graph(4), exec(2));
  pool_.graphs().launched(exec(2), 1);
  EXPECT_EQ(pool_.release(a, 1, 3, 5), Release::done) << "nothing has released it so far";
  pool_.graphs().launched(exec(1), 1);
  pool_.graphs().launched(exec(3), 1);
  EXPECT_EQ(pool_.release(a, 1, 0, std::nullopt), Release::nothing_there) << "by the other one's launch";
}

TEST_F(CapturePoolTest, WhatTheGpuMayBeAtWorkInIsNotUsedAgainAtOnce) {
  const std::uint64_t dead = allocate_in(8, 1000);
  pool_.graphs().ended(8, nullptr);
  pool_.former().reuse();
  const std::uint64_t a = allocate(1000);
  EXPECT_TRUE(release(a));
  EXPECT_EQ(context_.live.size(), 1u);
  pool_.graphs().ended(kCapture, graph(1));
  pool_.graphs().instantiated(graph(1), exec(2));
  pool_.graphs().launched(exec(2), 1);
  pool_.graphs().destroyed(graph(1));
  pool_.graphs().destroyed(exec(2));
  pool_.former().reuse();
  allocate_in(9, 1000);
  EXPECT_EQ(context_.live.size(), 2u) << "the launch may still run";
  pool_.former().sweep(pool_.former().moment());
  allocate_in(10, 1000);
  EXPECT_EQ(context_.live.size(), 2u);
  EXPECT_TRUE(release(dead, std::nullopt));
}

TEST_F(CapturePoolTest, AStreamNotOrderedAfterAReleaseDoesNotGetItsMemory) {
  const std::uint64_t a = allocate(1000);
  EXPECT_TRUE(release(a));
  const std::uint64_t b = allocate(1000, 0, 2);
  EXPECT_TRUE(release(b, 0, 2));
  pool_.unordered(kCapture, 1);
  EXPECT_NE(allocate(1000), a);
  EXPECT_EQ(allocate(1000, 0, 2), b) << "the other stream is";
}

TEST_F(CapturePoolTest, AStreamThatEndsLeavesNothingToTheNextOfItsHandle) {
  const std::uint64_t a = allocate(1000);
  EXPECT_TRUE(release(a));
  const std::uint64_t b = allocate(1000, 0, 2);
  EXPECT_TRUE(release(b, 0, 2));
  pool_.stream_ended(2);
  EXPECT_NE(allocate(1000, 0, 2), b);
  EXPECT_EQ(allocate(1000), a);
}

TEST_F(CapturePoolTest, WhatALaunchBringsIsThereUntilItIsReleased) {
  const std::uint64_t a = allocate(1000);
  pool_.graphs().ended(kCapture, graph(1));
  pool_.graphs().instantiated(graph(1), exec(2));
  for (int launch = 0; launch < 2; ++launch) {
    pool_.graphs().launched(exec(2), 1);
    EXPECT_TRUE(release(a, std::nullopt));
    EXPECT_EQ(pool_.release(a, 1, 0, std::nullopt), Release::nothing_there);
  }
  pool_.graphs().launched(exec(2), 1);
  pool_.graphs().destroyed(graph(1));
  pool_.graphs().destroyed(exec(2));
  EXPECT_FALSE(pool_.former().has_retired()) << "the last launch has brought it again";
  EXPECT_TRUE(release(a, std::nullopt));
  EXPECT_TRUE(pool_.former().has_retired());
}

TEST_F(CapturePoolTest, MemoryOfCapturesThatCameToNothingGoesToOthers) {
  std::vector<std::uint64_t> dead;
  for (std::uint64_t capture = 10; capture < 30; ++capture) {
    dead.push_back(allocate_in(capture, 1000));
    pool_.graphs().ended(capture, capture % 2 != 0 ? graph(capture) : nullptr);
    pool_.graphs().destroyed(graph(capture));
    EXPECT_TRUE(pool_.former().has_spare());
    EXPECT_EQ(pool_.former().reuse().size(), 1u);
    EXPECT_FALSE(pool_.former().has_spare());
  }
  EXPECT_EQ(context_.live.size(), 1u);
  for (std::size_t i = 0; i < dead.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(dead[i], dead[k]) << "a release would be of both";
  const std::uint64_t a = allocate(1000);
  for (const std::uint64_t each : dead) EXPECT_TRUE(release(each, std::nullopt)) << "as if it had been there";
  EXPECT_FALSE(release(dead[0], std::nullopt));
  EXPECT_TRUE(release(a, std::nullopt));
  pool_.graphs().ended(kCapture, nullptr);
  EXPECT_EQ(pool_.former().sweep(pool_.former().moment()).size(), 1u);
  EXPECT_TRUE(context_.live.empty());
}

TEST_F(CapturePoolTest, SpareMemoryThatCannotBeNamedAnyMoreIsReleased) {
  const std::uint64_t a = allocate(1000);
  pool_.graphs().ended(kCapture, nullptr);
  EXPECT_FALSE(pool_.former().has_retired());
  EXPECT_TRUE(release(a, std::nullopt));
  EXPECT_TRUE(pool_.former().has_retired());
  EXPECT_EQ(pool_.release(a, 1, 0, std::nullopt), Release::foreign);
  pool_.former().sweep(pool_.former().moment());
  EXPECT_TRUE(context_.live.empty());
}

TEST_F(CapturePoolTest, WhatTheProgramsGraphMayHoldInPartStays) {
  allocate(1000);
  pool_.graphs().ended(kCapture, nullptr, true);
  EXPECT_FALSE(pool_.former().has_retired());
  EXPECT_FALSE(pool_.former().has_spare());
}

TEST_F(CapturePoolTest, ACaptureHasMemoryOfOneContext) {
  const auto other = reinterpret_cast<CUcontext>(0x100);
  const auto third = reinterpret_cast<CUcontext>(0x200);
  EXPECT_TRUE(pool_.allocate(8, {other}, 1, 0, 1000));
  EXPECT_EQ(context_.asked_in, other) << "whatever is current";
  EXPECT_EQ(context_.pushed, nullptr);
  EXPECT_FALSE(pool_.allocate(8, {third}, 1, 0, 1000));
  EXPECT_TRUE(pool_.allocate(8, {other}, 1, 0, 1000));
}

TEST_F(CapturePoolTest, WhatOthersMayReachComesFromThePoolThatTheyReach) {
  const CaptureHome reached{nullptr, 1};
  pool_.began(8, Serve::once, nullptr);
  const std::uint64_t a = pool_.allocate(8, reached, 1, 0, 1000)->address;
  EXPECT_TRUE(context_.of_pool.contains(a));
  EXPECT_EQ(context_.streams, 0);
  EXPECT_FALSE(pool_.allocate(8, {}, 1, 0, 1000)) << "a capture has memory of one kind";
  pool_.graphs().ended(8, graph(1));
  pool_.graphs().destroyed(graph(1));
  while (pool_.former().has_spare()) pool_.former().reuse();
  EXPECT_NE(allocate(1000), a + 512) << "no other capture gets abandoned memory";
  const auto next = pool_.allocate(9, reached, 1, 0, 1000);
  ASSERT_TRUE(next);
  EXPECT_EQ(context_.of_pool.size(), 1u) << "unused memory is reused";
  pool_.release(a, 1, 0, std::nullopt);
  EXPECT_TRUE(pool_.allocate(10, {nullptr, 2}, 1, 0, 1000));
  EXPECT_EQ(context_.of_pool.size(), 2u) << "of the pool that it is now";
}

TEST_F(CapturePoolTest, APoolIsNotWaitedForForGood) {
  context_.comes_late = true;
  EXPECT_FALSE(pool_.allocate(8, {nullptr, 1}, 1, 0, 1000));
  EXPECT_TRUE(context_.of_pool.empty());
  EXPECT_EQ(context_.streams, 0);
}

TEST_F(CapturePoolTest, IsReleasedOnceItCannotBeUsed) {
  const std::uint64_t a = allocate(1000);
  pool_.graphs().ended(kCapture, graph(1));
  pool_.graphs().instantiated(graph(1), exec(2));
  pool_.graphs().instantiated(graph(1), exec(3));
  pool_.graphs().launched(exec(3), 1);
  pool_.graphs().destroyed(graph(1));
  pool_.graphs().destroyed(exec(2));
  EXPECT_TRUE(release(a, std::nullopt));
  EXPECT_FALSE(pool_.former().has_retired());
  pool_.graphs().destroyed(exec(3));
  EXPECT_TRUE(pool_.former().has_retired());
  EXPECT_EQ(context_.live.size(), 1u) << "the GPU may not be done with it";
  const std::vector<MemorySlot> gone = pool_.former().sweep(pool_.former().moment());
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].address, a);
  EXPECT_TRUE(context_.live.empty());
  EXPECT_FALSE(pool_.former().has_retired());
  EXPECT_FALSE(release(a));
}

TEST_F(CapturePoolTest, WhatWasReleasedAfterTheCaptureStays) {
  const std::uint64_t a = allocate(1000);
  pool_.graphs().ended(kCapture, graph(1));
  pool_.graphs().instantiated(graph(1), exec(2));
  pool_.graphs().launched(exec(2), 1);
  EXPECT_TRUE(release(a, std::nullopt)) << "each launch writes there again";
  EXPECT_TRUE(pool_.holds(a));
  EXPECT_EQ(context_.live.size(), 1u);
}

TEST_F(CapturePoolTest, OfAGraphThatIsAPartOfOthersItStaysForGood) {
  const std::uint64_t a = allocate(1000);
  pool_.graphs().ended(kCapture, graph(1));
  pool_.graphs().instantiated(graph(1), exec(2));
  pool_.graphs().shared(exec(2));
  release(a, std::nullopt);
  pool_.graphs().destroyed(graph(1));
  pool_.graphs().destroyed(exec(2));
  EXPECT_FALSE(pool_.former().has_retired());
}

TEST_F(CapturePoolTest, TellsWhetherACapturesAllocationsAreDisjoint) {
  EXPECT_FALSE(pool_.serves_apart(99, 1000));
  pool_.began(8, Serve::again, nullptr);
  EXPECT_FALSE(pool_.serves_apart(8, 1000));
  pool_.began(9, Serve::once, nullptr);
  EXPECT_TRUE(pool_.serves_apart(9, 1000));
  const auto planned = std::make_shared<CapturePlan>(plan());
  pool_.began(10, Serve::planned, planned);
  const std::uint64_t first = planned->allocations.front().size;
  EXPECT_TRUE(pool_.serves_apart(10, first));
  EXPECT_FALSE(pool_.serves_apart(10, first + 1)) << "another one comes first";
  pool_.unordered(10, 1);
  EXPECT_FALSE(pool_.serves_apart(10, first)) << "it has not kept to its plan";
  planned->allocations.clear();
  pool_.began(11, Serve::planned, planned);
  EXPECT_FALSE(pool_.serves_apart(11, first)) << "it has all that was planned";
}

TEST_F(CapturePoolTest, WhereTheDriverHasNoMemoryTheProgramAsksItItself) {
  context_.refuses = true;
  EXPECT_EQ(allocate(1000), 0u);
  EXPECT_FALSE(pool_.refusal(kCapture, {}));
  pool_.began(8, Serve::planned, std::make_shared<CapturePlan>(plan()));
  EXPECT_FALSE(pool_.allocate(8, {}, 1, 0, 1000));
  EXPECT_EQ(pool_.refusal(8, {}), CUDA_ERROR_OUT_OF_MEMORY) << "who has asked for memory of here must get no other";
  EXPECT_EQ(pool_.refusal(8, {.context = reinterpret_cast<CUcontext>(std::uintptr_t{64})}), CUDA_ERROR_NOT_SUPPORTED);
  pool_.graphs().ended(8, graph(1));
  EXPECT_FALSE(pool_.memory_of(graph(1)));
}

}  // namespace
}  // namespace nimble::shim
