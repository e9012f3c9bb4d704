// When the player submits what it holds: before the program could see that it is held back.
#include <gtest/gtest.h>

#include <algorithm>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

// Without the step's context, or with another one, the driver refuses what the program may not do: it must be asked.
TEST_F(StepPlayerTest, CallsInAnotherContextReachTheDriver) {
  CUcontext const own = driver_.current;
  for (CUcontext const other : {CUcontext{}, reinterpret_cast<CUcontext>(0x18)}) {
    bind();
    step();
    EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
    driver_.current = other;  // as a step begins
    EXPECT_EQ(alloc(), kPool);
    EXPECT_EQ(set(kPool, 1, CUDA_ERROR_INVALID_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(submitted(), (Log{"passed", "passed"}));
    driver_.current = own;
    free(kPool);
    submitted();
    const std::uint64_t t = alloc();  // in its midst
    set(t, 5);
    launch(t, 6);
    EXPECT_EQ(submitted(), Log{});
    driver_.current = other;
    record();
    EXPECT_EQ(submitted(), (Log{"set 5", "launch 6", "passed"}));
    EXPECT_EQ(driver_.current, other);
    driver_.current = own;
    launch(kWeights, 2);
    free(t);
    step();
    submitted();
    step();
    EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  }
}

// Calls through which the program could see that work is held back, and calls that look like it but could not.
TEST_F(StepPlayerTest, OnlyCallsThatCouldObserveFlush) {
  const auto mine = reinterpret_cast<CUevent>(0x50), older = reinterpret_cast<CUevent>(0x51);
  const auto flushes = [&](auto&& action) {
    const std::uint64_t t = alloc();
    set(t, 5);
    launch(t, 6);
    record(mine);
    submitted();
    action();
    const Log log = submitted();
    const bool flushed = std::find(log.begin(), log.end(), "set 5") != log.end();
    launch(kWeights, 2);
    host_function();
    launch(kWeights, 3);
    launch(t, 4);
    free(t);
    submitted();
    return flushed;
  };
  bind();
  EXPECT_FALSE(flushes([] {}));
  EXPECT_TRUE(flushes([&] { observe(CallKind::stream_synchronize); }));
  EXPECT_FALSE(flushes([&] { observe(CallKind::stream_synchronize, nullptr, FakeDriver::kOther); }));
  EXPECT_TRUE(flushes([&] { observe(CallKind::event_synchronize, mine); }));
  EXPECT_FALSE(flushes([&] { observe(CallKind::event_synchronize, older); }));
  EXPECT_TRUE(flushes([&] { observe(CallKind::context_synchronize); }));
  EXPECT_TRUE(flushes([&] {  // another stream waits for an event whose record is held
    Call c = call(CallKind::event_wait, FakeDriver::kOther);
    c.event = mine;
    make(c);
  }));
  EXPECT_FALSE(flushes([&] {
    Call c = call(CallKind::event_wait, FakeDriver::kOther);
    c.event = older;
    make(c);
  }));
  EXPECT_TRUE(flushes([&] { record(mine, FakeDriver::kOther); }));
  EXPECT_FALSE(flushes([&] { launch(kWeights, 9, FakeDriver::kKernel, FakeDriver::kOther); }));
  EXPECT_TRUE(flushes([&] {  // a synchronous copy, on whatever stream
    Call c = call(CallKind::copy, FakeDriver::kOther);
    c.host = HostEffect::observe;
    make(c);
  }));
  EXPECT_TRUE(flushes([&] {  // the event is destroyed while its record is held
    Call c;
    c.ends = Ends::event;
    c.event = mine;
    make(c);
  }));
  EXPECT_FALSE(flushes([&] {
    Call c = call(CallKind::alloc);
    c.host = HostEffect::neutral;
    make(c);
  }));
}

TEST_F(StepPlayerTest, AfterAFlushTheRestOfTheSegmentPassesAndTheNextOneIsAGraph) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 5);
  observe(CallKind::stream_synchronize);
  EXPECT_EQ(submitted(), (Log{"set 5", "passed"}));
  launch(t, 1);
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), Log(3, "passed"));
  host_function();
  launch(kWeights, 3);
  launch(t, 4);
  EXPECT_EQ(submitted(), (Log{"passed", "graph"}));
  free(t);
  EXPECT_EQ(counters_.steps_replayed, 0u);
  EXPECT_EQ(counters_.steps_passed_through, 2u);
}

// A graph of the program's may wait for an event whose record is held.
TEST_F(StepPlayerTest, AGraphOnAnotherStreamFlushesHeldRecords) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6);
  Call graph = call(CallKind::graph_launch, FakeDriver::kOther);
  make(graph);
  EXPECT_EQ(submitted(), Log{"passed"});
  record();
  make(graph);
  EXPECT_EQ(submitted(), (Log{"set 5", "launch 6", "record", "passed"}));
}

// Only ops that are held count as progress: a program that polls must not keep the watchdog quiet.
TEST_F(StepPlayerTest, PollingIsNoActivity) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  const auto before = player_.holding();
  EXPECT_NE(before, 0u);
  Call query = call(CallKind::event_synchronize);
  query.host = HostEffect::observe;
  query.query = true;
  query.event = reinterpret_cast<CUevent>(0x99);
  make(query);
  launch(kWeights, 1, FakeDriver::kKernel, FakeDriver::kOther);
  EXPECT_EQ(player_.holding(), before);
  launch(t, 1);
  EXPECT_NE(player_.holding(), before);
}

// The program destroys an event that a graph records, and the driver does not let the graph release it: held ops are
// submitted before the step is unbound, since they cannot be afterwards.
TEST_F(StepPlayerTest, WhatIsHeldIsSubmittedBeforeTheStepIsUnbound) {
  bind();
  step();
  const std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6);
  submitted();
  driver_.refuse["patch"] = CUDA_ERROR_OUT_OF_MEMORY;
  Call destroy;
  destroy.ends = Ends::event;
  destroy.event = reinterpret_cast<CUevent>(0x50);
  make(destroy);
  driver_.refuse.clear();
  EXPECT_EQ(submitted(), (Log{"set 5", "launch 6", "record", "passed"}));
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), Log(2, "passed"));
  EXPECT_EQ(player_.stood_aside(), "");
  host_function();
  launch(kWeights, 3);
  launch(t, 4);
  free(t);
  step();  // binds anew
  submitted();
  step();
  // For what the step did before, and for the free while it was unbound: it might have moved to another stream.
  EXPECT_EQ(submitted(), (Log{"wait", "wait", "graph", "passed", "graph"}));
}

// The stream's end may be what lets its work go on: nothing may wait there.
TEST_F(StepPlayerTest, NothingWaitsWhenTheStreamEnds) {
  bind();
  step();
  const std::uint64_t kept = alloc();
  submitted();
  Call destroy;
  destroy.host = HostEffect::observe;
  destroy.ends = Ends::stream;
  destroy.stream = {FakeDriver::kStream, reinterpret_cast<std::uint64_t>(FakeDriver::kStream)};
  make(destroy);
  EXPECT_EQ(submitted(), (Log{"record", "passed"}));
  // Memory that was served outlives the stream, and its release needs the stream no more; the next one waits for it.
  free(kept, FakeDriver::kOther);
  EXPECT_EQ(submitted(), Log{"record"});
}

}  // namespace
}  // namespace nimble
