// The driver's errors: later calls return those of held ops, each once and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

// A program may try launches out: which block is the largest, how much shared memory there is.
TEST_F(StepPlayerTest, AShapeThatTheDriverHasNotTakenYetIsNotHeld) {
  bind();
  const auto tried = [&](std::uint32_t block, std::uint32_t shared, CUresult driver_says) {
    const std::uint64_t t = alloc();
    set(t);
    Call c = call(CallKind::launch);
    std::uint64_t pointer = t;
    std::uint32_t number = 1;
    void* params[] = {&pointer, &number};
    c.launch.function = FakeDriver::kKernel;
    c.launch.grid = {7, 1, 1};
    c.launch.block = {block, 1, 1};
    c.launch.shared_bytes = shared;
    c.launch.kernel_params = params;
    const CUresult told = make(c, driver_says);
    record();
    launch(kWeights, 2);
    host_function();
    launch(kWeights, 3);
    launch(t, 4);
    free(t);
    return told;
  };
  const auto graphs = [&] {
    const Log log = submitted();
    return std::count(log.begin(), log.end(), "graph");
  };
  EXPECT_EQ(tried(1, 0, CUDA_SUCCESS), CUDA_SUCCESS) << "as it was, on another grid";
  EXPECT_EQ(graphs(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tried(2048, 0, CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(tried(1, 1 << 20, CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(graphs(), 0);
  }
  EXPECT_EQ(tried(512, 1024, CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(graphs(), 0);
  EXPECT_EQ(tried(512, 1024, CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(graphs(), 2) << "it has taken it once";
  Call unload;
  unload.ends = Ends::code;
  unload.host = HostEffect::observe;
  make(unload);
  bind();
  submitted();
  EXPECT_EQ(tried(512, 1024, CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE) << "this is another one";
  EXPECT_EQ(graphs(), 0);
  EXPECT_EQ(player_.stood_aside(), "");
}

class StepErrors : public StepPlayerTest {
 protected:
  // A step is bound, and one op of the next is held that the driver refuses.
  void hold_refused(CUresult error = CUDA_ERROR_INVALID_VALUE) {
    bind();
    tensor_ = alloc();
    set(tensor_);
    driver_.refuse["set"] = error;
  }
  CUresult wait(CUresult driver_says = CUDA_SUCCESS) {
    Call c = call(CallKind::stream_synchronize);
    c.host = HostEffect::observe;
    return make(c, driver_says);
  }
  std::uint64_t tensor_ = 0;
};

TEST_F(StepErrors, TheCallThatReportsIsStillMade) {
  hold_refused();
  submitted();
  EXPECT_EQ(wait(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(submitted(), (Log{"record", "wait", "passed"}));  // the arena's end comes after what was done with it
  EXPECT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_EQ(player_.stood_aside(), "the driver refused an op (CUDA_ERROR_INVALID_VALUE)");
}

TEST_F(StepErrors, EachIsReportedOnce) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1);
  driver_.refuse["set"] = CUDA_ERROR_INVALID_VALUE;
  driver_.refuse["launch"] = CUDA_ERROR_OUT_OF_MEMORY;
  player_.flush();
  driver_.refuse.clear();
  EXPECT_EQ(launch(t, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(t, 3), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(launch(t, 4), CUDA_SUCCESS);
}

TEST_F(StepErrors, WhatMakesSomethingDoesNotTell) {
  hold_refused();
  player_.flush();
  Call made = call(CallKind::alloc_async);
  made.memory.size = 32;
  EXPECT_EQ(make(made), CUDA_SUCCESS);
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  begin.host = HostEffect::observe;
  EXPECT_EQ(make(begin), CUDA_SUCCESS);
  // Nor what is captured: it does nothing yet.
  driver_.capturing = {FakeDriver::kOther};
  EXPECT_EQ(launch(kWeights, 1, FakeDriver::kKernel, FakeDriver::kOther), CUDA_SUCCESS);
  EXPECT_EQ(wait(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StepErrors, ACallsOwnErrorComesFirst) {
  hold_refused();
  EXPECT_EQ(wait(CUDA_ERROR_OUT_OF_MEMORY), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(wait(CUDA_ERROR_NOT_READY), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(wait(), CUDA_SUCCESS);
}

TEST_F(StepErrors, TheDriversOwnErrorsAreNotReportedAgain) {
  hold_refused(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(wait(CUDA_ERROR_ILLEGAL_ADDRESS), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(player_.errors().any());
}

TEST_F(StepErrors, AContextsEndReportsAndForgets) {
  hold_refused();
  Call end;
  end.traced = true;
  end.kind = CallKind::context_end;
  end.host = HostEffect::observe;
  EXPECT_EQ(make(end), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(wait(), CUDA_SUCCESS);
}

// In a context that has failed the driver answers nothing else; and what replay answers for it is no exception.
TEST_F(StepErrors, MemoryOfTheArenaFailsWithItsContext) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  player_.context_failed(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(player_.stood_aside(), "");
  EXPECT_EQ(player_.holding(), 0u);
  Call release = call(CallKind::free_async);
  release.memory.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_ERROR_LAUNCH_FAILED);
  // The next context may be given the same addresses.
  Call end;
  end.context = reinterpret_cast<CUcontext>(0x8);
  player_.context_gone(end);
  EXPECT_EQ(player_.before_aside(release), std::nullopt);
}

TEST_F(StepErrors, AnotherContextsEndLeavesTheArena) {
  bind();
  const std::uint64_t t = alloc();
  Call end;
  end.context = reinterpret_cast<CUcontext>(0x80);
  player_.context_gone(end);
  Call release = call(CallKind::free_async);
  release.memory.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_SUCCESS);
}

TEST_F(StepErrors, AFreeElsewhereIsNoErrorOfTheProgram) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  submitted();
  driver_.refuse["wait"] = CUDA_ERROR_OUT_OF_MEMORY;
  Call release = call(CallKind::free_async, FakeDriver::kOther);
  release.memory.address = t;
  EXPECT_EQ(make(release), CUDA_SUCCESS);
  EXPECT_NE(player_.stood_aside(), "");
  EXPECT_EQ(submitted(), (Log{"record", "set 1"}));  // what was held is not lost
}

// A step whose last op the driver refused must not be bound from, and nothing may rely on it.
TEST_F(StepErrors, AStepThatFailedAtItsLastOpDoesNotBind) {
  Schedule small;
  small.functions = {{"k", {{0, 8}, {8, 4}}}};
  small.objects = {{MemoryKind::device, 64}};
  add_launch(small, 0, 0);
  add_launch(small, 0, 0);
  add_op(small, CallKind::host_function, Submit::direct, kNone);
  small.segments = {{0, 1, 1, 0, {{0, 1}}, {0, 1}}};
  Counters counters;
  StepPlayer player(small, driver_, api_, counters);
  Call weights = call(CallKind::alloc);
  weights.memory.address = kWeights;
  weights.memory.size = 64;
  player.after(weights, CUDA_SUCCESS);
  const auto step = [&](CUresult last) {
    bool held = false;
    for (const std::uint32_t number : {1u, 2u}) {
      std::uint64_t pointer = kWeights;
      std::uint32_t value = number;
      void* params[] = {&pointer, &value};
      Call c = call(CallKind::launch);
      c.launch.function = FakeDriver::kKernel;
      c.launch.grid = c.launch.block = {1, 1, 1};
      c.launch.kernel_params = params;
      held = player.before(c).has_value();
      if (!held) player.after(c, CUDA_SUCCESS);
    }
    Call host = call(CallKind::host_function);
    if (!player.before(host)) player.after(host, last);
    return held;
  };
  EXPECT_FALSE(step(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(step(CUDA_SUCCESS));
  EXPECT_TRUE(step(CUDA_SUCCESS));
}

}  // namespace
}  // namespace nimble
