#include "replayer/bystanders/bystanders.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/replayer/bystanders/bystanders_support.h"
#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

class BystandersTest : public testing::Test {
 protected:
  // A call of a traced kind that names no stream.
  static Call event(CallKind kind, HostEffect host) {
    Call c = op(kind, {}, host);
    c.has_stream = false;
    return c;
  }
  static Call with_address(Call c, std::uint64_t address) {
    c.memory.address = address;
    return c;
  }
  static Call launch(StreamRef on, CUfunction function = FakeDriver::kKernel) {
    Call c = op(CallKind::launch, on);
    c.launch.function = function;
    return c;
  }
  std::vector<MemoryEvent> noted(Bystanders& bystanders) {
    std::vector<MemoryEvent> events;
    bystanders.news.drain([&](const MemoryEvent& e) { events.push_back(e); });
    return events;
  }
  void follow(StreamRef on, bool holding) { searching_.publish(state(on, holding)); }
  Bystanders::State state(StreamRef on, bool holding) {
    followed_ = on;
    return {.streams = {&followed_, 1},
            .version = on.key,
            .open = on.key == 0,
            .holding = holding,
            .arena = FakeDriver::kArena,
            .arena_bytes = kArenaBytes};
  }

  FakeDriver driver_;
  const Schedule begins_with_alloc_ = schedule(First::alloc), begins_with_launch_ = schedule(First::launch),
                 begins_with_any_launch_ = schedule(First::direct_launch);
  Bystanders searching_{begins_with_launch_, driver_};
  StreamRef followed_;
  const StreamRef mine_ = stream(FakeDriver::kStream), other_ = stream(FakeDriver::kOther);
};

TEST_F(BystandersTest, OpsOnTheFollowedStreamDoNotPass) {
  for (const bool holding : {false, true}) {
    follow(mine_, holding);
    EXPECT_FALSE(searching_.passes(launch(mine_)));
    EXPECT_FALSE(searching_.passes(launch(mine_, reinterpret_cast<CUfunction>(0x11))));
    EXPECT_TRUE(searching_.passes(launch(other_)));
    EXPECT_TRUE(searching_.passes(launch(other_, reinterpret_cast<CUfunction>(0x11))));
  }
}

TEST_F(BystandersTest, WhereNoStreamIsFollowedOpsThatCouldBeginTheStepDoNotPass) {
  EXPECT_FALSE(searching_.passes(launch(mine_)));
  EXPECT_FALSE(searching_.passes(launch(other_)));
  EXPECT_TRUE(searching_.passes(launch(other_, reinterpret_cast<CUfunction>(0x11)))) << "another kernel";
  EXPECT_TRUE(searching_.passes(op(CallKind::set, mine_)));
  Bystanders allocs{begins_with_alloc_, driver_};
  EXPECT_FALSE(allocs.passes(op(CallKind::alloc_async, other_)));
  EXPECT_TRUE(allocs.passes(launch(other_)));
  Bystanders launches{begins_with_any_launch_, driver_};
  EXPECT_FALSE(launches.passes(launch(other_)));
  EXPECT_FALSE(launches.passes(launch(other_, reinterpret_cast<CUfunction>(0x11))))
      << "of a direct op no more is known";
  EXPECT_TRUE(launches.passes(op(CallKind::set, mine_)));
}

// While ops are held, whatever could observe them must be looked at by the player.
TEST_F(BystandersTest, WhileOpsAreHeldOnlyWhatCannotObserveThemPasses) {
  const auto passes = [&](const Call& call, StreamRef followed, bool holding) {
    follow(followed, holding);
    return searching_.passes(call);
  };
  const auto observe = HostEffect::observe;
  Call records = launch(other_), records_too = launch(other_);
  records.event = records_too.event2 = reinterpret_cast<CUevent>(7);
  const std::vector<Call> observers = {
      records,
      records_too,
      op(CallKind::stream_synchronize, mine_, observe),
      event(CallKind::event_synchronize, observe),
      event(CallKind::context_synchronize, observe),
      op(CallKind::copy, other_, observe),  // synchronous
      op(CallKind::set, other_, observe),
      op(CallKind::event_wait, other_),
      op(CallKind::event_record, other_),
      op(CallKind::graph_launch, other_),
      op(CallKind::host_function, other_),
      op(CallKind::opaque, other_),
      with_address(event(CallKind::free, observe), 0x6000),
  };
  for (const Call& call : observers) {
    EXPECT_FALSE(passes(call, mine_, true)) << name(call.kind);
    EXPECT_TRUE(passes(call, mine_, false)) << name(call.kind);
  }
  const std::vector<Call> others = {
      launch(other_),
      op(CallKind::copy, other_),
      op(CallKind::set, other_),
      op(CallKind::alloc_async, other_),
      with_address(op(CallKind::free_async, other_), 0x6000),
      op(CallKind::stream_synchronize, other_, observe),
  };
  for (const Call& call : others) EXPECT_TRUE(passes(call, mine_, true)) << name(call.kind);
  // The legacy stream waits for others, and others for it.
  for (Call call : others) {
    EXPECT_FALSE(passes(call, kLegacy, true)) << name(call.kind);
    EXPECT_TRUE(passes(call, kLegacy, false)) << name(call.kind);
    call.stream = kLegacy;
    EXPECT_FALSE(passes(call, mine_, true)) << name(call.kind);
    EXPECT_TRUE(passes(call, mine_, false)) << name(call.kind);
  }
}

TEST_F(BystandersTest, CallsOfNoTracedKindPassUnlessTheyCouldObserve) {
  Call c;
  for (const bool holding : {false, true}) {
    follow(mine_, holding);
    for (const HostEffect host : {HostEffect::async, HostEffect::neutral}) {
      c.host = host;
      EXPECT_TRUE(searching_.passes(c));
    }
    c.host = HostEffect::observe;
    EXPECT_EQ(searching_.passes(c), !holding);
  }
}

TEST_F(BystandersTest, WhatEndsOrHidesSomethingDoesNotPass) {
  follow(mine_, false);
  for (const Ends ends : {Ends::stream, Ends::event, Ends::code}) {
    Call c;
    c.ends = ends;
    EXPECT_FALSE(searching_.passes(c));
  }
  for (const CallKind kind : {CallKind::hidden, CallKind::context_end}) {
    EXPECT_FALSE(searching_.passes(event(kind, HostEffect::neutral))) << name(kind);
  }
  for (const CallKind kind : {CallKind::capture_begin, CallKind::capture_end}) {
    EXPECT_FALSE(searching_.passes(op(kind, other_, HostEffect::observe))) << name(kind);
    EXPECT_FALSE(searching_.passed(op(kind, other_), CUDA_SUCCESS)) << name(kind);
  }
  EXPECT_FALSE(searching_.passed(event(CallKind::hidden, HostEffect::neutral), CUDA_SUCCESS));
  EXPECT_FALSE(searching_.passed(event(CallKind::context_end, HostEffect::neutral), CUDA_SUCCESS));
  Call shared = event(CallKind::alloc, HostEffect::neutral);
  shared.memory.kind = MemoryKind::external;
  EXPECT_FALSE(searching_.passed(shared, CUDA_SUCCESS));
}

TEST_F(BystandersTest, CallsThatNameTheArenaDoNotPass) {
  for (const bool holding : {false, true}) {
    follow(mine_, holding);
    for (const std::uint64_t address : {FakeDriver::kArena, FakeDriver::kArena + kArenaBytes - 1}) {
      Call range;
      range.asked.question = Question::memory;
      range.memory.address = address;
      EXPECT_FALSE(searching_.passes(range));
      EXPECT_FALSE(searching_.passes_aside(range));
      const Call release = with_address(op(CallKind::free_async, other_), address);
      EXPECT_FALSE(searching_.passes(release));
      EXPECT_FALSE(searching_.passes_aside(release));
      EXPECT_FALSE(searching_.passes(with_address(event(CallKind::free, HostEffect::observe), address)));
      EXPECT_FALSE(searching_.passes_aside(with_address(event(CallKind::free, HostEffect::observe), address)));
    }
    for (const std::uint64_t address : {std::uint64_t{0}, FakeDriver::kArena - 1, FakeDriver::kArena + kArenaBytes}) {
      Call range;
      range.asked.question = Question::memory;
      range.memory.address = address;
      EXPECT_TRUE(searching_.passes(range));
      EXPECT_TRUE(searching_.passes_aside(range));
      EXPECT_TRUE(searching_.passes(with_address(op(CallKind::free_async, other_), address)));
    }
  }
  EXPECT_TRUE(searching_.passes_aside(launch(mine_)));
  EXPECT_EQ(noted(searching_).size(), 6u) << "releases of other memory, and nothing else";
}

TEST_F(BystandersTest, MemoryThatComesAndGoesIsNoted) {
  follow(mine_, false);
  EXPECT_TRUE(searching_.passes(with_address(op(CallKind::free_async, other_), 0x6000)));
  Call unmap = with_address(event(CallKind::free, HostEffect::observe), 0x7000);
  unmap.memory.size = 0x2000;  // all that begins there
  EXPECT_TRUE(searching_.passes(unmap));
  Call alloc = event(CallKind::alloc, HostEffect::neutral);
  EXPECT_TRUE(searching_.passes(alloc));
  alloc.memory.address = 0x8000;
  alloc.memory.size = 96;
  alloc.memory.kind = MemoryKind::pinned;
  EXPECT_TRUE(searching_.passed(alloc, CUDA_SUCCESS));
  EXPECT_TRUE(searching_.passed(alloc, CUDA_ERROR_OUT_OF_MEMORY));
  alloc.traced = false;
  EXPECT_TRUE(searching_.passed(alloc, CUDA_SUCCESS));
  Call on_stream = op(CallKind::alloc_async, other_);
  on_stream.memory.address = 0x9000;
  on_stream.memory.size = 32;
  on_stream.memory.kind = MemoryKind::stream_ordered;
  EXPECT_TRUE(searching_.passed(on_stream, CUDA_SUCCESS));
  const std::vector<MemoryEvent> events = noted(searching_);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_FALSE(events[0].born);
  EXPECT_EQ(events[0].allocation.base, 0x6000u);
  EXPECT_FALSE(events[1].born);
  EXPECT_EQ(events[1].allocation.base, 0x7000u);
  EXPECT_EQ(events[1].allocation.size, 0x2000u);
  EXPECT_TRUE(events[2].born);
  EXPECT_EQ(events[2].allocation.base, 0x8000u);
  EXPECT_EQ(events[2].allocation.size, 96u);
  EXPECT_EQ(events[2].allocation.memory, MemoryKind::pinned);
  EXPECT_FALSE(events[2].allocation.arena);
  EXPECT_TRUE(events[3].born);
  EXPECT_EQ(events[3].allocation.base, 0x9000u);
  EXPECT_EQ(events[3].allocation.memory, MemoryKind::stream_ordered);
}

// A release that a capture swallows releases nothing: the player asks the driver which stream captures.
TEST_F(BystandersTest, WhileAStreamCapturesReleasesGoToThePlayer) {
  const Call release = with_address(op(CallKind::free_async, other_), 0x6000);
  for (const bool capturing : {true, false}) {
    Bystanders::State now = state(mine_, false);
    now.capturing = capturing;
    searching_.publish(now);
    EXPECT_EQ(searching_.passes(release), !capturing);
    EXPECT_TRUE(searching_.passes(launch(other_)));
  }
  EXPECT_EQ(noted(searching_).size(), 1u);
}

// Memory may yet be copied back on the followed stream: the player makes others wait for that.
TEST_F(BystandersTest, WhileAnAuditIsUnderWayOpsGoToThePlayer) {
  for (const bool auditing : {false, true}) {
    Bystanders::State now = state(mine_, false);
    now.auditing = auditing;
    searching_.publish(now);
    for (const Call& call : {launch(other_), op(CallKind::copy, other_), op(CallKind::free_async, other_)})
      EXPECT_EQ(searching_.passes(call), !auditing);
    EXPECT_TRUE(searching_.passes(op(CallKind::alloc, {}))) << "works on nothing";
  }
}

// What cannot be noted goes to the player.
TEST_F(BystandersTest, NothingIsNotedTwiceOrLostWhereThereIsNoRoom) {
  follow(mine_, false);
  const Call release = with_address(op(CallKind::free_async, other_), 0x6000);
  std::size_t room = 0;
  while (room < 1'000'000 && searching_.passes(release)) ++room;
  ASSERT_LT(room, 1'000'000u);
  EXPECT_FALSE(searching_.passed(with_address(op(CallKind::alloc_async, other_), 0x9000), CUDA_SUCCESS));
  EXPECT_FALSE(searching_.passed(with_address(event(CallKind::alloc, HostEffect::neutral), 0x9000), CUDA_SUCCESS));
  EXPECT_TRUE(searching_.passes(launch(other_)));
  EXPECT_EQ(noted(searching_).size(), room);
  EXPECT_EQ(searching_.ops(), room + 1);
}

// The player waits for the address of an allocation on its stream, and for the failure of an op on it.
TEST_F(BystandersTest, OutcomesOnTheFollowedStreamGoToThePlayer) {
  follow(mine_, false);
  EXPECT_FALSE(searching_.passed(op(CallKind::alloc_async, mine_), CUDA_SUCCESS));
  EXPECT_FALSE(searching_.passed(launch(mine_), CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_TRUE(searching_.passed(launch(mine_), CUDA_SUCCESS));
  EXPECT_TRUE(searching_.passed(launch(other_), CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_TRUE(searching_.passed(op(CallKind::stream_synchronize, mine_), CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_EQ(noted(searching_).size(), 0u);
}

TEST_F(BystandersTest, OpsOnOneOfSeveralFollowedStreamsAreReportedOnceTheDriverHasThem) {
  Schedule two_streams = schedule(First::launch);
  two_streams.streams.resize(2);
  Bystanders searching{two_streams, driver_};
  searching.publish(state(mine_, false));
  EXPECT_FALSE(searching.passed(launch(mine_), CUDA_SUCCESS)) << "the graphs have to follow it";
  EXPECT_TRUE(searching.passed(launch(other_), CUDA_SUCCESS));
}

TEST_F(BystandersTest, OpsThatPassAreCounted) {
  follow(mine_, false);
  for (std::uint32_t thread = 0; thread < 40; ++thread) {
    Call c = launch(other_);
    c.thread = thread;
    EXPECT_TRUE(searching_.passes(c));
  }
  EXPECT_TRUE(searching_.passes(op(CallKind::stream_synchronize, other_, HostEffect::observe)));  // no op
  EXPECT_FALSE(searching_.passes(launch(mine_)));  // the player counts it
  EXPECT_EQ(searching_.ops(), 40u);
}

}  // namespace
}  // namespace nimble
