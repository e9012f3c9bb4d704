// How steps are replayed: which calls become graphs, what may change from step to step, and what diverges.
#include "replayer/step/step_player.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

TEST_F(StepPlayerTest, TheFirstStepPassesTheNextOnesAreGraphs) {
  step();
  EXPECT_EQ(driver_.log, Log(9, "passed"));
  driver_.log.clear();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));  // the host function passes between two graphs
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  EXPECT_EQ(counters_.steps_replayed, 2u);
  EXPECT_EQ(counters_.steps_passed_through, 1u);
}

// A schedule may rely on what the previous step has left in memory.
class CarryingTest : public StepPlayerTest {
 protected:
  static Schedule carrying() {
    Schedule s = schedule();
    s.carries = true;
    return s;
  }
  CarryingTest() : StepPlayerTest(carrying()) {}
};

TEST_F(CarryingTest, AStepAfterOneThatDivergedPasses) {
  bind();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1, FakeDriver::kKernel, FakeDriver::kStream, 0);  // an empty launch is no part of any step
  free(t);
  submitted();
  step();
  EXPECT_EQ(submitted(), Log(7, "passed")) << "memory from the plan, and nothing held";
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  EXPECT_EQ(counters_.steps_replayed, 2u);
}

// On whatever stream: the pointers that a step follows may not be those that the step before has left.
TEST_F(CarryingTest, AStepAfterSomethingElsePasses) {
  bind();
  for (const CallKind kind : {CallKind::launch, CallKind::copy, CallKind::host_function, CallKind::graph_launch,
                              CallKind::opaque, CallKind::set, CallKind::event_record}) {
    step();
    EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
    Call other = call(kind, FakeDriver::kOther);
    other.launch.function = reinterpret_cast<CUfunction>(0x11);
    make(other);
    submitted();
    step();
    const bool leaves_none = kind == CallKind::set || kind == CallKind::event_record;
    EXPECT_EQ(submitted(), leaves_none ? (Log{"graph", "passed", "graph"}) : Log(7, "passed")) << name(kind);
  }
}

// Ops held by then precede it, and later ones may follow the pointers that it has left.
TEST_F(CarryingTest, TheRestOfAStepThatSomethingElseComesIntoPasses) {
  bind();
  for (const CallKind kind : {CallKind::launch, CallKind::copy, CallKind::host_function, CallKind::graph_launch,
                              CallKind::opaque, CallKind::set, CallKind::event_record}) {
    step();
    EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
    const std::uint64_t t = alloc();
    first_part(t);
    host_function();
    submitted();
    Call other = call(kind, FakeDriver::kOther);
    other.launch.function = reinterpret_cast<CUfunction>(0x11);
    make(other);
    submitted();
    launch(kWeights, 3);
    launch(t, 4);
    free(t);
    const bool leaves_none = kind == CallKind::set || kind == CallKind::event_record;
    EXPECT_EQ(submitted(), leaves_none ? Log{"graph"} : Log(2, "passed")) << name(kind);  // the release is the plan's
    step();  // which passes as well: the one before was not as recorded
    submitted();
  }
}

TEST_F(StepPlayerTest, NothingIsSubmittedBeforeItsSegmentIsWhole) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1);
  record();
  EXPECT_EQ(submitted(), Log{});
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), Log{"graph"});
}

TEST_F(StepPlayerTest, ChangedParametersArePatched) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 77);
  launch(t, 1);
  record();
  launch(kWeights, 99);
  EXPECT_EQ(submitted(), (Log{"patch 77", "patch 99", "graph"}));
}

TEST_F(StepPlayerTest, ADivergenceSubmitsWhatIsHeldInProgramOrder) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6);
  launch(t, 7);  // the schedule expects a record
  EXPECT_EQ(submitted(), (Log{"set 5", "launch 6", "passed"}));
  EXPECT_EQ(counters_.reasons.size(), 1u);
}

TEST_F(StepPlayerTest, AnotherKernelOrAnotherObjectIsADivergence) {
  bind();
  std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6, reinterpret_cast<CUfunction>(0x11));
  EXPECT_EQ(submitted(), (Log{"set 5", "passed"}));
  free(t);
  t = alloc();
  set(t, 5);
  launch(kWeights, 6);
  EXPECT_EQ(submitted(), (Log{"set 5", "passed"}));
}

TEST_F(StepPlayerTest, EachReasonOfADivergenceIsSaidOnce) {
  bind();
  EXPECT_EQ(player_.standing().take_news(), "");
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t t = alloc();
    set(t);
    launch(kWeights, 6);
    free(t);
    EXPECT_EQ(player_.standing().take_news(),
              i > 0 ? ""
                    : "a step deviated from the schedule at op 2 (launch k): a pointer to "
                      "another object, in byte 0 of its parameters");
  }
  EXPECT_EQ(counters_.reasons["a pointer to another object"], 3u);
}

TEST_F(StepPlayerTest, ReplayGoesOnAfterADivergence) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 7, reinterpret_cast<CUfunction>(0x11));
  free(t);
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
}

TEST_F(StepPlayerTest, LaunchShapesMayChange) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1, FakeDriver::kKernel, FakeDriver::kStream, 5);
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), (Log{"patch 1", "graph"}));
  host_function();
  launch(kWeights, 3, FakeDriver::kKernel, FakeDriver::kStream, 0);  // an empty grid fits into no graph
  EXPECT_EQ(submitted(), (Log{"passed", "passed"}));
}

TEST_F(StepPlayerTest, MovedBuffersAreFollowed) {
  bind();
  step();
  submitted();
  Call release = call(CallKind::free);
  release.memory.address = kWeights;
  make(release);
  allocated(0x6000, 64, MemoryKind::device);
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1);
  record();
  launch(0x6000, 2);
  EXPECT_EQ(submitted(), (Log{"passed", "patch 2", "graph"}));  // the free, then the graph
  host_function();
  launch(kWeights, 3);  // not alive any more
  EXPECT_EQ(submitted(), (Log{"passed", "passed"}));
}

TEST_F(StepPlayerTest, UnloadedCodeIsBoundAgain) {
  bind();
  step();
  Call unload;
  unload.host = HostEffect::observe;
  unload.ends = Ends::code;
  make(unload);
  submitted();
  step();
  EXPECT_EQ(submitted(), Log(9, "passed"));
  step();
  // The arena may be used on another stream now: it comes after what was on the old one.
  EXPECT_EQ(submitted(), (Log{"wait", "graph", "passed", "graph"}));
}

TEST_F(StepPlayerTest, OtherStreamsDoNotDisturbTheStep) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(kWeights, 50, FakeDriver::kKernel, FakeDriver::kOther);
  launch(t, 1);
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), (Log{"passed", "graph"}));
}

class PrioritiesTest : public StepPlayerTest {
 protected:
  PrioritiesTest() : StepPlayerTest(with_priorities()) {}

  static Schedule with_priorities() {
    Schedule s = schedule();
    s.ops[2].priority = 2;
    s.ops[6].priority = kMaxPriority;
    return s;
  }
  // What building the graphs of a step comes to.
  Log built() {
    step();
    driver_.log.clear();
    step();
    Log result;
    for (const std::string& entry : driver_.log)
      if (entry.starts_with("priority") || entry.starts_with("instantiate")) result.push_back(entry);
    return result;
  }
};

// Above the stream's own priority, -2, as far as the device goes; of kernels alone.
TEST_F(PrioritiesTest, KernelsGetThoseOfTheSchedule) {
  EXPECT_EQ(built(), (Log{"priority -4", "priority -2", "instantiate_with_priorities", "priority -5", "priority -2",
                          "instantiate_with_priorities"}));
}

TEST_F(PrioritiesTest, WhereTheDriverHasNoneTheGraphsDoWithout) {
  driver_.refuse["instantiate_with_priorities"] = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(built(), (Log{"priority -4", "priority -2", "instantiate", "priority -5", "priority -2", "instantiate"}));
}

TEST_F(PrioritiesTest, WhereANodeTakesNoneTheGraphDoesWithout) {
  driver_.refuse["priority"] = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(built(), (Log{"instantiate", "instantiate"}));
}

}  // namespace
}  // namespace nimble
