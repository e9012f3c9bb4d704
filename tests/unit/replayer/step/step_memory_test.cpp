// What the player does with a step's own memory: it serves it from the memory plan, and manages what the program keeps.
#include <gtest/gtest.h>

#include <algorithm>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

TEST_F(StepPlayerTest, StepLocalMemoryComesFromThePlan) {
  bind();
  EXPECT_EQ(alloc(), FakeDriver::kArena);
}

TEST_F(StepPlayerTest, MemoryThatIsStillInUseIsNotServedTwice) {
  bind();
  const std::uint64_t kept = alloc();
  first_part(kept);
  host_function();
  launch(kWeights, 3);
  launch(kept, 4);
  // No free; a new step begins.
  EXPECT_EQ(alloc(), kPool);
  free(kept);
  EXPECT_EQ(alloc(), kept);
}

TEST_F(StepPlayerTest, MemoryFreedOnAnotherStreamIsOrderedBeforeItsNextUse) {
  bind();
  const std::uint64_t t = alloc();
  first_part(t);
  submitted();
  free(t, FakeDriver::kOther);
  EXPECT_EQ(submitted(), (Log{"record", "wait"}));
}

// Once the step is no longer bound, it is unknown which stream will use the memory next.
TEST_F(StepPlayerTest, MemoryFreedWhileUnboundIsOrderedBeforeItsNextUse) {
  bind();
  const std::uint64_t t = alloc();
  first_part(t);
  Call unload;
  unload.ends = Ends::code;
  player_.before(unload);
  submitted();
  free(t, FakeDriver::kOther);
  EXPECT_EQ(submitted(), Log{"record"});
  step();
  submitted();
  alloc();  // binds anew
  const Log again = submitted();
  EXPECT_EQ(std::count(again.begin(), again.end(), "wait"), 2) << "for what the step did before, and for the free";
}

// A stream that captures cannot wait: another thread's capture would be spoilt.
TEST_F(StepPlayerTest, MemoryFreedWhileTheStepsStreamCapturesIsOrderedBeforeItsNextUse) {
  bind();
  const std::uint64_t t = alloc();
  first_part(t);
  host_function();
  launch(kWeights, 3);
  launch(t, 4);
  submitted();
  driver_.capturing = {FakeDriver::kStream};
  Call begin = call(CallKind::capture_begin);
  begin.host = HostEffect::observe;
  make(begin);
  submitted();
  free(t, FakeDriver::kOther);
  EXPECT_EQ(submitted(), Log{"record"});
  driver_.capturing.clear();
  Call end = call(CallKind::capture_end);
  end.host = HostEffect::observe;
  make(end);
  submitted();
  EXPECT_EQ(alloc(), t);
  EXPECT_EQ(submitted(), Log{"wait"});
}

// What a stream that captures frees is freed when the graph runs.
TEST_F(StepPlayerTest, ACapturedFreeIsNotAnswered) {
  bind();
  const std::uint64_t t = alloc();
  driver_.capturing = {FakeDriver::kOther};
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  begin.host = HostEffect::observe;
  make(begin);
  Call release = call(CallKind::free_async, FakeDriver::kOther);
  release.memory.address = t;
  EXPECT_FALSE(player_.before(release));
}

TEST_F(StepPlayerTest, AReleaseOfMemoryOfAnotherKindIsNotAnswered) {
  bind();
  const std::uint64_t t = alloc();
  Call release = call(CallKind::free);
  release.memory.address = t;
  release.memory.size = 64;
  for (const MemoryKind kind : {MemoryKind::pinned, MemoryKind::mapped, MemoryKind::external}) {
    release.memory.kind = kind;
    EXPECT_FALSE(player_.before(release));
  }
  Call c;
  c.asked.question = Question::memory;
  c.memory.address = t;
  EXPECT_EQ(player_.before(c), CUDA_SUCCESS) << "it is there";
  release.memory.kind = MemoryKind::device;
  EXPECT_EQ(player_.before(release), CUDA_SUCCESS);
  EXPECT_EQ(player_.before(c), CUDA_ERROR_NOT_FOUND);
}

TEST_F(StepPlayerTest, AddressRangesAreTheProgramsAllocations) {
  bind();
  const std::uint64_t t = alloc();
  Call c;
  c.asked.question = Question::memory;
  c.memory.address = t + 10;
  EXPECT_EQ(player_.before(c), CUDA_SUCCESS);
  EXPECT_EQ(c.memory.address, t);
  EXPECT_EQ(c.memory.size, 64u);
  c.memory.address = kWeights;
  EXPECT_FALSE(player_.before(c).has_value());
}

Call question(std::uint64_t address, bool asks_id = false) {
  Call c;
  c.asked.question = Question::memory;
  c.memory.address = address;
  c.asked.id = asks_id;
  return c;
}

TEST_F(StepPlayerTest, EachAllocationHasANumberOfItsOwnForItsLife) {
  bind();
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t t = alloc();
    Call plain = question(t);
    EXPECT_EQ(player_.before(plain), CUDA_SUCCESS);
    EXPECT_EQ(plain.asked.buffer_id, 0u) << "not asked for";
    Call first = question(t, true), again = question(t + 8, true);
    EXPECT_EQ(player_.before(first), CUDA_SUCCESS);
    EXPECT_EQ(player_.before(again), CUDA_SUCCESS);
    EXPECT_GT(first.asked.buffer_id, last);
    EXPECT_EQ(first.asked.buffer_id, again.asked.buffer_id);
    last = first.asked.buffer_id;
    first_part(t);
    host_function();
    launch(kWeights, 3);
    launch(t, 4);
    free(t);
    Call gone = question(t, true);
    EXPECT_EQ(player_.before(gone), CUDA_ERROR_NOT_FOUND);
  }
  EXPECT_EQ(counters_.steps_replayed, 3u);
  EXPECT_EQ(driver_.pieces, 3u);
  EXPECT_EQ(driver_.own_streams, 0) << "their context may go";
}

TEST_F(StepPlayerTest, WhetherCopiesAreSynchronousIsOfTheAllocation) {
  bind();
  const std::uint64_t t = alloc();
  Call set = question(t);
  set.asked.sets = true;
  set.transfer.value = 1;
  set.host = HostEffect::observe;
  EXPECT_EQ(player_.before(set), CUDA_SUCCESS);
  EXPECT_EQ(set.transfer.value, 1u);
  Call ask = question(t);
  EXPECT_EQ(player_.before_aside(ask), CUDA_SUCCESS) << "replay has ended, the memory is there";
  EXPECT_TRUE(ask.asked.synchronous_copies);
  Call release = call(CallKind::free_async);
  release.memory.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_SUCCESS);
  ask = question(t);
  EXPECT_EQ(player_.before_aside(ask), std::nullopt) << "the driver has it again";
}

Call pool_question() {
  Call c;
  c.asked.question = Question::pool;
  return c;
}

TEST_F(StepPlayerTest, WhoAsksWhatAPoolHasGetsNothingFromThePlan) {
  Call c = pool_question();
  EXPECT_FALSE(player_.before(c));
  step();
  EXPECT_EQ(alloc(), kPool);
  EXPECT_NE(player_.stood_aside().find("its pool"), std::string::npos);
}

TEST_F(StepPlayerTest, WhoAskedThatBeforeReplayTookOverGetsNothingEither) {
  player_.after(pool_question(), CUDA_SUCCESS);
  step();
  EXPECT_EQ(alloc(), kPool);
}

TEST_F(StepPlayerTest, WhatAPoolHasIsAskedOnceTheArenaIsBack) {
  bind();
  step();
  submitted();
  Call c = pool_question();
  EXPECT_FALSE(player_.before(c));
  EXPECT_EQ(submitted(), Log{"free"});
  EXPECT_NE(player_.stood_aside(), "");
  Call later = pool_question();
  EXPECT_FALSE(player_.before_aside(later));
  Call range = question(FakeDriver::kArena);
  EXPECT_FALSE(player_.before_aside(range)) << "it is the driver's";
}

// Of the pools of other devices nothing is the step's.
TEST_F(StepPlayerTest, AnotherPoolIsNoMatterOfTheSteps) {
  bind();
  alloc();
  Call c = pool_question();
  c.memory.address = FakeDriver::kArenaPool + 8;
  EXPECT_FALSE(player_.before(c));
  EXPECT_EQ(player_.stood_aside(), "");
  c = pool_question();
  c.memory.address = FakeDriver::kArenaPool;
  EXPECT_EQ(player_.before(c), CUDA_SUCCESS);
  EXPECT_NE(player_.stood_aside(), "");
}

// The arena is released in the order of the launch stream, which has to follow all others that have used it.
TEST_F(StepPlayerTest, TheArenaIsReleasedAfterItsUses) {
  bind();
  const std::uint64_t t = alloc();
  first_part(t);
  Call unload;
  unload.ends = Ends::code;
  player_.before(unload);  // from here on another stream may be the step's
  free(t, FakeDriver::kOther);
  submitted();
  Call c = pool_question();
  EXPECT_FALSE(player_.before(c));
  EXPECT_EQ(submitted(), (Log{"wait", "wait", "free"})) << "for what the step did before, and for the free";
}

TEST_F(StepPlayerTest, WhereAFreeIsInNoOrderTheArenaStays) {
  bind();
  const std::uint64_t t = alloc();
  player_.standing().stand_aside("for a test");
  Call release = call(CallKind::free_async, FakeDriver::kOther);
  release.memory.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_SUCCESS);
  player_.leave();
  const Log all = submitted();
  EXPECT_EQ(std::count(all.begin(), all.end(), "free"), 0);
}

TEST_F(StepPlayerTest, WhereReplayEndsTheArenaGoes) {
  bind();
  step();
  submitted();
  player_.standing().stand_aside("for a test");
  player_.leave();
  EXPECT_EQ(submitted(), Log{"free"});
  player_.leave();
  EXPECT_EQ(submitted(), Log{});
}

TEST_F(StepPlayerTest, WhenMemoryIsShortTheArenaIsReleasedAndAnEventTellsWhen) {
  bind();
  step();
  submitted();
  GoingArena arena;
  EXPECT_TRUE(player_.let_go_of_memory(arena));
  EXPECT_NE(arena.gone, nullptr);
  EXPECT_EQ(arena.bytes, 256u);
  const Log all = submitted();
  EXPECT_EQ((Log{all.end() - 2, all.end()}), (Log{"free", "record"}));
  EXPECT_EQ(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, WhoHasAnotherDeviceReachMemoryEndsReplay) {
  bind();
  const std::uint64_t t = alloc();
  Call set = question(t);
  set.asked.sets = true;
  set.transfer.value = 1;
  EXPECT_EQ(player_.before(set), CUDA_SUCCESS);
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, WhatTheProgramHasInTheArenaCountsWhereItsPoolIsAsked) {
  bind();
  const std::uint64_t t = alloc();
  Call c = pool_question();
  EXPECT_EQ(player_.before(c), CUDA_SUCCESS);
  EXPECT_EQ(c.transfer.width, 256u);
  EXPECT_EQ(c.memory.size, 64u);
  Call release = call(CallKind::free_async);
  release.memory.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_SUCCESS);
  Call later = pool_question();
  EXPECT_EQ(player_.before_aside(later), std::nullopt) << "the pool has the arena again";
}

// alloc A; set A; free A; alloc B; set B; free B, where A and B have the same bytes, B beyond those of A as well.
class PackedPlanTest : public StepPlayerTest {
 protected:
  PackedPlanTest() : StepPlayerTest(packed()) {}

  static Schedule packed() {
    Schedule s;
    s.objects = {{MemoryKind::stream_ordered, 64, true, 0}, {MemoryKind::stream_ordered, 512, true, 0}};
    s.arena_bytes = 512;
    for (const std::uint32_t object : {0u, 1u}) {
      for (const CallKind kind : {CallKind::alloc_async, CallKind::set, CallKind::free_async}) {
        ScheduleOp& op = s.ops.emplace_back();
        op.kind = kind;
        op.submit = kind == CallKind::set ? Submit::graph : Submit::plan;
        if (kind == CallKind::set) {
          op.segment = 0;
          op.dst = {object, 0, false};
          op.width = 64;
          op.element = 4;
        } else {
          op.object = object;
          op.size = kind == CallKind::alloc_async ? s.objects[object].size : 0;
        }
      }
    }
    s.segments = {{1, 4, 1, 0, {{1, 4}}, {1, 4}}};
    return s;
  }
  void step() {
    const std::uint64_t a = alloc(64);
    set(a);
    free(a);
    const std::uint64_t b = alloc(512);
    set(b);
    free(b);
  }
};

TEST_F(PackedPlanTest, ObjectsThatShareBytesAreServedOneAfterTheOther) {
  step();
  submitted();
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t a = alloc(64);
    EXPECT_EQ(a, FakeDriver::kArena);
    set(a);
    free(a);
    const std::uint64_t b = alloc(512);
    EXPECT_EQ(b, FakeDriver::kArena);
    Call range;
    range.asked.question = Question::memory;
    range.memory.address = b + 8;
    EXPECT_EQ(player_.before(range), CUDA_SUCCESS);
    EXPECT_EQ(range.memory.size, 512u) << "of the one that the program has at the moment";
    set(b);
    free(b);
    range.memory.address = b + 8;
    EXPECT_EQ(player_.before(range), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(submitted(), Log{"graph"});
  }
  EXPECT_EQ(counters_.steps_replayed, 3u);
  EXPECT_EQ(counters_.reasons.size(), 0u);
}

// A step keeps B beyond its end: the next one must not put A where it lies.
TEST_F(PackedPlanTest, MemoryThatIsKeptIsNotServedUnderAnotherName) {
  step();
  const std::uint64_t a = alloc(64);
  set(a);
  free(a);
  const std::uint64_t kept = alloc(512);
  set(kept);
  EXPECT_EQ(kept, FakeDriver::kArena);
  submitted();
  EXPECT_EQ(alloc(64), kPool);
  free(kPool);
  free(kept);
  EXPECT_EQ(alloc(64), FakeDriver::kArena);
}

}  // namespace
}  // namespace nimble
