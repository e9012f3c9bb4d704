#include "replayer/bind/arena.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

using Log = std::vector<std::string>;

Schedule schedule() {
  Schedule s;
  s.objects = {{MemoryKind::stream_ordered, 64, true, 0}, {MemoryKind::stream_ordered, 64, true, 64}};
  s.arena_bytes = 256;
  return s;
}

class ArenaTest : public testing::Test {
 protected:
  ArenaTest() {
    streams_.use_context(reinterpret_cast<CUcontext>(0x8));
    streams_.set(0, ref(FakeDriver::kStream));
  }
  static StreamRef ref(CUstream stream) { return {stream, reinterpret_cast<std::uint64_t>(stream)}; }
  static Call call(CallKind kind, std::uint64_t address, CUstream stream = FakeDriver::kStream) {
    Call c;
    c.kind = kind;
    c.traced = c.has_stream = true;
    c.stream = ref(stream);
    c.memory.address = address;
    return c;
  }
  // The program allocates the object where the schedule expects it.
  std::uint64_t take(std::uint32_t object) {
    Call c = call(CallKind::alloc_async, 0);
    arena_.take(object, c);
    return c.memory.address;
  }
  Log log() { return std::exchange(driver_.log, {}); }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  const Schedule schedule_ = schedule();
  Captures captures_;
  StandAside standing_;
  StepStreams streams_{schedule_, driver_, api_};
  StepErrors errors_{api_, streams_, captures_, standing_};
  StepMemory memory_{schedule_};
  Arena arena_{schedule_, api_, memory_, streams_, captures_, errors_, standing_};
};

TEST_F(ArenaTest, IsAllocatedOnceAndHoldsTheStepsObjects) {
  EXPECT_FALSE(arena_.holds(FakeDriver::kArena));
  ASSERT_TRUE(arena_.provide());
  ASSERT_TRUE(arena_.provide());
  EXPECT_EQ(log(), Log{"alloc"});
  EXPECT_TRUE(arena_.holds(FakeDriver::kArena + 255));
  EXPECT_FALSE(arena_.holds(FakeDriver::kArena + 256));
  EXPECT_EQ(take(1), FakeDriver::kArena + 64);
  EXPECT_TRUE(arena_.is_in_use());
}

TEST_F(ArenaTest, GoesBackWhenTheProgramHasNothingInIt) {
  ASSERT_TRUE(arena_.provide());
  const std::uint64_t address = take(0);
  EXPECT_FALSE(arena_.give_back());
  EXPECT_EQ(arena_.release(call(CallKind::free_async, address), true), CUDA_SUCCESS);
  captures_.begin(ref(FakeDriver::kOther));
  EXPECT_FALSE(arena_.give_back());
  captures_.forget(ref(FakeDriver::kOther));
  GoingArena going;
  EXPECT_TRUE(arena_.give_back(going));
  EXPECT_NE(going.gone, nullptr);
  EXPECT_EQ(going.bytes, 256u);
  EXPECT_EQ(arena_.base(), 0u);
  EXPECT_FALSE(arena_.give_back());
}

TEST_F(ArenaTest, AReleaseOnAnotherStreamIsWaitedFor) {
  ASSERT_TRUE(arena_.provide());
  const std::uint64_t address = take(0);
  log();
  EXPECT_EQ(arena_.release(call(CallKind::free_async, address, FakeDriver::kOther), true), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{"record", "wait"}));
  EXPECT_EQ(arena_.release(call(CallKind::free_async, address), true), CUDA_ERROR_INVALID_VALUE);  // it is gone
}

TEST_F(ArenaTest, IfItCannotBeWaitedForReplayStandsAsideAndTheMemoryIsNotReused) {
  ASSERT_TRUE(arena_.provide());
  const std::uint64_t address = take(0);
  driver_.refuse["wait"] = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_EQ(arena_.release(call(CallKind::free_async, address, FakeDriver::kOther), true), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(standing_.aside());
  EXPECT_FALSE(arena_.give_back());
}

class LeftArenaTest : public ArenaTest {
 protected:
  LeftArenaTest() {
    EXPECT_TRUE(arena_.provide());
    for (std::uint64_t& address : address_) address = take(static_cast<std::uint32_t>(&address - address_));
  }
  void leave() {
    standing_.stand_aside("for the test");
    arena_.leave();
    log();
  }
  void release(int which, CallKind kind = CallKind::free_async, CUstream stream = FakeDriver::kStream) {
    EXPECT_EQ(arena_.release(call(kind, address_[which], stream), false), CUDA_SUCCESS);
  }
  std::uint64_t address_[2] = {};
};

TEST_F(LeftArenaTest, GoesOnceTheProgramHasReleasedWhatItHasThere) {
  leave();
  EXPECT_EQ(driver_.own_streams, 1);
  release(1, CallKind::free_async, FakeDriver::kOther);
  EXPECT_EQ(log(), (Log{"record", "wait"}));
  EXPECT_TRUE(arena_.holds(FakeDriver::kArena));
  release(0);
  EXPECT_EQ(log(), (Log{"record", "wait", "free"}));
  EXPECT_EQ(driver_.own_streams, 0);
  EXPECT_FALSE(arena_.holds(FakeDriver::kArena));
}

TEST_F(LeftArenaTest, GoesAfterAReleaseThatTakesAllToBeOver) {
  leave();
  release(0, CallKind::free);
  release(1, CallKind::free);
  EXPECT_EQ(log(), Log{"free"});
  EXPECT_EQ(driver_.own_streams, 0);
}

TEST_F(LeftArenaTest, StaysWhereItsUseIsNotKnown) {
  leave();
  driver_.capturing = {FakeDriver::kOther};
  release(1, CallKind::free_async, FakeDriver::kOther);
  driver_.capturing.clear();
  release(0);
  EXPECT_EQ(log(), Log{});
  EXPECT_TRUE(arena_.holds(FakeDriver::kArena));
}

TEST_F(LeftArenaTest, StaysWhereWhatReplayDidWithItIsNotWaitedFor) {
  driver_.refuse["wait"] = CUDA_ERROR_UNKNOWN;
  leave();
  driver_.refuse.clear();
  EXPECT_EQ(driver_.own_streams, 0);
  release(0);
  release(1);
  EXPECT_EQ(log(), Log{});
}

TEST_F(LeftArenaTest, StaysWhereTheDriverDoesNotTakeIt) {
  leave();
  driver_.refuse["free"] = CUDA_ERROR_UNKNOWN;
  release(0);
  release(1);
  EXPECT_TRUE(arena_.holds(FakeDriver::kArena));
  EXPECT_EQ(driver_.own_streams, 0);
}

TEST_F(ArenaTest, QuestionsAreAnsweredForTheAllocationThatTheProgramHas) {
  ASSERT_TRUE(arena_.provide());
  take(1);
  Call c = call(CallKind::opaque, FakeDriver::kArena + 100);
  c.asked.question = Question::memory;
  EXPECT_EQ(arena_.answer_question(c), CUDA_SUCCESS);
  EXPECT_EQ(c.memory.address, FakeDriver::kArena + 64);
  EXPECT_EQ(c.memory.size, 64u);
  c.memory.address = FakeDriver::kArena;
  EXPECT_EQ(arena_.answer_question(c), CUDA_ERROR_NOT_FOUND);
  c.memory.address = 0x1234;
  EXPECT_EQ(arena_.answer_question(c), std::nullopt);
}

TEST_F(ArenaTest, ThereIsNoneOnceItsPoolIsQueried) {
  Call pool;
  pool.asked.question = Question::pool;
  EXPECT_EQ(arena_.answer_pool(pool), std::nullopt);
  EXPECT_FALSE(arena_.ask_of_pool(pool));
  EXPECT_FALSE(arena_.provide());
  EXPECT_EQ(standing_.why(), Arena::kPoolAsked);
}

TEST_F(ArenaTest, DoesNotMoveToAnotherContext) {
  ASSERT_TRUE(arena_.provide());
  streams_.use_context(reinterpret_cast<CUcontext>(0x18));
  EXPECT_FALSE(arena_.provide());
  EXPECT_EQ(standing_.why(), "the step moved to another context");
}

TEST_F(ArenaTest, OnAnotherStreamItFollowsThePreviousOne) {
  ASSERT_TRUE(arena_.provide());
  arena_.leave_stream();
  log();
  streams_.set(0, ref(FakeDriver::kOther));
  EXPECT_TRUE(arena_.provide());
  EXPECT_EQ(log(), Log{"wait"});
  driver_.refuse["record"] = CUDA_ERROR_UNKNOWN;
  arena_.leave_stream();
  EXPECT_FALSE(arena_.provide());
  EXPECT_EQ(standing_.why(), "the step moved to a stream that cannot wait for the previous one");
}

}  // namespace
}  // namespace nimble
