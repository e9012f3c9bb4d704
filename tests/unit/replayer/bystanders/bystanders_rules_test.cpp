#include "replayer/bystanders/bystanders.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

Schedule beginning_with(CallKind kind, Submit submit) {
  Schedule schedule;
  ScheduleOp& first = schedule.ops.emplace_back();
  first.kind = kind;
  first.submit = submit;
  if (kind == CallKind::launch && submit == Submit::graph) {
    schedule.functions = {{"k", {{0, 8}, {8, 4}}}};
    first.function = 0;
  }
  return schedule;
}

Call call(CallKind kind) {
  Call c;
  c.kind = kind;
  c.traced = true;
  c.host = HostEffect::async;
  c.has_stream = is_op(kind);
  c.stream = {FakeDriver::kStream, reinterpret_cast<std::uint64_t>(FakeDriver::kStream)};
  c.launch.function = FakeDriver::kKernel;
  return c;
}

TEST(BystandersRules, ALaunchThatMayBeginTheStepIsThePlayersBusiness) {
  FakeDriver driver;
  const Schedule in_graph = beginning_with(CallKind::launch, Submit::graph);
  Bystanders named(in_graph, driver);
  Call launch = call(CallKind::launch);
  EXPECT_FALSE(named.passes(launch));
  launch.launch.function = reinterpret_cast<CUfunction>(0x11);
  EXPECT_TRUE(named.passes(launch)) << "another kernel";
  // Where the step begins with a launch that goes to the driver as it is, the schedule does not say of what.
  const Schedule direct = beginning_with(CallKind::launch, Submit::direct);
  Bystanders unnamed(direct, driver);
  EXPECT_FALSE(unnamed.passes(launch));
  EXPECT_TRUE(unnamed.passes(call(CallKind::set)));
}

// Of which it is not known before whether the driver takes them.
TEST(BystandersRules, LaunchesOfTheStepThatPassedAreThePlayersBusiness) {
  FakeDriver driver;
  const Schedule schedule = beginning_with(CallKind::set, Submit::graph);
  Bystanders bystanders(schedule, driver);
  for (const CallKind kind : {CallKind::launch, CallKind::copy}) {
    Call passed = call(kind);
    EXPECT_TRUE(bystanders.passed(passed, CUDA_SUCCESS));
    passed.of_step = true;
    EXPECT_EQ(bystanders.passed(passed, CUDA_SUCCESS), kind != CallKind::launch);
  }
}

TEST(BystandersRules, TheLastOpOfATimedStepIsThePlayersBusiness) {
  FakeDriver driver;
  const Schedule schedule = beginning_with(CallKind::set, Submit::graph);
  Bystanders bystanders(schedule, driver);
  const Call launch = call(CallKind::launch);
  const std::span<const StreamRef> followed(&launch.stream, 1);
  bystanders.publish({.streams = followed, .version = 1, .open = false});
  EXPECT_TRUE(bystanders.passed(launch, CUDA_SUCCESS));
  bystanders.publish({.streams = followed, .version = 1, .open = false, .closing = true});
  EXPECT_FALSE(bystanders.passed(launch, CUDA_SUCCESS));
  Call elsewhere = launch;
  elsewhere.stream.key += 1;
  EXPECT_TRUE(bystanders.passed(elsewhere, CUDA_SUCCESS));
}

TEST(BystandersRules, WhatEndsReplayIsThePlayersBusiness) {
  FakeDriver driver;
  const Schedule schedule = beginning_with(CallKind::set, Submit::graph);
  Bystanders bystanders(schedule, driver);
  for (const CallKind kind :
       {CallKind::hidden, CallKind::context_end, CallKind::capture_begin, CallKind::capture_end}) {
    EXPECT_FALSE(bystanders.passes(call(kind))) << name(kind);
    EXPECT_FALSE(bystanders.passed(call(kind), CUDA_SUCCESS)) << name(kind);
  }
  Call alloc = call(CallKind::alloc);
  EXPECT_TRUE(bystanders.passed(alloc, CUDA_SUCCESS));
  alloc.memory.kind = MemoryKind::external;
  EXPECT_FALSE(bystanders.passed(alloc, CUDA_SUCCESS));
  for (const Ends ends : {Ends::stream, Ends::event, Ends::code, Ends::green_context}) {
    Call end;
    end.ends = ends;
    EXPECT_FALSE(bystanders.passes(end));
  }
}

// A graph, or what nothing is known of, may record an event that the step waits for.
TEST(BystandersRules, WhereTheStepWaitsForEventsWhatMayRecordOneIsThePlayersBusiness) {
  FakeDriver driver;
  for (const bool waits : {false, true}) {
    Schedule schedule = beginning_with(CallKind::set, Submit::graph);
    if (waits) {
      ScheduleOp& wait = schedule.ops.emplace_back();
      wait.kind = CallKind::event_wait;
      wait.submit = Submit::order;
    }
    Bystanders bystanders(schedule, driver);
    for (const CallKind kind : {CallKind::graph_launch, CallKind::opaque})
      EXPECT_EQ(bystanders.passes(call(kind)), !waits) << name(kind);
    Call record = call(CallKind::event_record);
    record.event = reinterpret_cast<CUevent>(0x50);
    EXPECT_EQ(bystanders.passes(record), !waits);
    EXPECT_TRUE(bystanders.passes(call(CallKind::launch)));
  }
}

TEST(BystandersRules, WhereTheStepFollowsPointersInMemoryWhatMayPutSomeThereIsThePlayersBusiness) {
  FakeDriver driver;
  for (const char* const what : {"nothing", "carries", "payload"}) {
    Schedule schedule = beginning_with(CallKind::alloc_async, Submit::graph);
    schedule.carries = what == std::string("carries");
    if (what == std::string("payload")) schedule.ops.front().payload.emplace();
    const bool follows = what != std::string("nothing");
    Bystanders bystanders(schedule, driver);
    for (const CallKind kind :
         {CallKind::launch, CallKind::copy, CallKind::host_function, CallKind::graph_launch, CallKind::opaque})
      EXPECT_EQ(bystanders.passes(call(kind)), !follows) << name(kind) << " " << what;
    for (const CallKind kind : {CallKind::set, CallKind::event_record, CallKind::stream_synchronize})
      EXPECT_TRUE(bystanders.passes(call(kind))) << name(kind);
  }
}

TEST(BystandersRules, AReleaseSaysHowFarItReaches) {
  FakeDriver driver;
  const Schedule schedule = beginning_with(CallKind::set, Submit::graph);
  Bystanders bystanders(schedule, driver);
  Call unmap = call(CallKind::free);
  unmap.memory.address = 4096;
  unmap.memory.size = 8192;
  EXPECT_TRUE(bystanders.passes(unmap));
  int events = 0;
  bystanders.news.drain([&](const MemoryEvent& event) {
    ++events;
    EXPECT_FALSE(event.born);
    EXPECT_EQ(event.allocation.base, 4096u);
    EXPECT_EQ(event.allocation.size, 8192u);
  });
  EXPECT_EQ(events, 1);
}

}  // namespace
}  // namespace nimble
