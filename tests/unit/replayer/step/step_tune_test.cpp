// Trying the ways in which a step can be submitted, by the player that submits it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

constexpr std::uint32_t kTrial = Tuner::kTurns * kWays * (Tuner::kWarmUp + Tuner::kTimed);

class StepTuneTest : public StepPlayerTest {
 protected:
  StepTuneTest() { player_.tune(Tune::start); }

  // A step that takes so long on the device: as the program's own, or as a graph. What was submitted, but for events.
  Log timed_step(float own_ms, float graph_ms) {
    step();
    Log log = submitted();
    const bool graphs = std::count(log.begin(), log.end(), "graph") != 0;
    driver_.elapsed_ms = graphs ? graph_ms : own_ms;  // is asked for when the next step begins
    log.erase(std::remove(log.begin(), log.end(), "record"), log.end());
    return log;
  }
  static std::ptrdiff_t count(const Log& log, const std::string& what) {
    return std::count(log.begin(), log.end(), what);
  }
};

TEST_F(StepTuneTest, EachWayIsTriedAndTheFasterStays) {
  bind();
  int own = 0, graphs = 0;
  for (std::uint32_t i = 0; i < kTrial; ++i) (count(timed_step(2, 1), "graph") != 0 ? graphs : own) += 1;
  EXPECT_EQ(own, static_cast<int>(kTrial / 3));
  EXPECT_EQ(graphs, static_cast<int>(kTrial * 2 / 3));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(count(timed_step(2, 1), "graph"), 2);
  EXPECT_EQ(player_.stood_aside(), "");
  EXPECT_EQ(player_.tuning().tuners()[0].settled(), Way::schedule);
  EXPECT_EQ(player_.tuning().tuners()[0].medians()[0], 2000);
}

TEST_F(StepTuneTest, ReplayEndsWhereTheProgramsOwnOrderIsFaster) {
  bind();
  for (std::uint32_t i = 0; i < kTrial + 2; ++i) timed_step(1, 2);
  EXPECT_EQ(player_.stood_aside(),
            "the program's own order is the fastest: 1000.0 us a step; the schedule 2000.0, one graph stream 2000.0");
}

TEST_F(StepTuneTest, WithoutATimerNothingIsTried) {
  api_.cuEventElapsedTime_ = nullptr;
  player_.tune(Tune::start);
  bind();
  EXPECT_EQ(count(timed_step(1, 2), "graph"), 2);
}

TEST_F(StepTuneTest, InTheProgramsOwnOrderCallsPassAsTheyCome) {
  bind();
  const Log log = timed_step(1, 1);  // the first turn is the program's own
  EXPECT_EQ(log, (Log{"passed", "passed", "passed", "passed", "passed", "passed", "passed"}));
}

// The graph that comes in has the values of the last time that it was used.
TEST_F(StepTuneTest, WhatComesInIsBroughtUpToDateOnce) {
  bind();
  constexpr std::uint32_t kTurn = Tuner::kWarmUp + Tuner::kTimed;
  for (std::uint32_t i = 0; i < kTrial; ++i) {
    const Log log = timed_step(2, 1);
    const bool own = i / kTurn % kWays == 0, comes_in = i % kTurn == 0;
    ASSERT_EQ(count(log, "graph"), own ? 0 : 2) << i;
    std::ptrdiff_t patches = 0;
    for (const std::string& entry : log) patches += entry.rfind("patch", 0) == 0;
    ASSERT_EQ(patches, comes_in && !own ? 6 : 0) << "all nodes, step " << i;
  }
}

// Where the step in which a graph comes in is broken off, it is not up to date yet.
TEST_F(StepTuneTest, ADivergenceLeavesNoGraphOutdated) {
  bind();
  for (std::uint32_t i = 0; i < Tuner::kWarmUp + Tuner::kTimed; ++i) timed_step(2, 1);
  const std::uint64_t t = alloc();
  first_part(t);  // one segment of two
  set(t, 99);     // is not what comes next
  driver_.log.clear();
  free(t);
  const Log log = timed_step(2, 1);
  std::ptrdiff_t patches = 0;
  for (const std::string& entry : log) patches += entry.rfind("patch", 0) == 0;
  EXPECT_EQ(count(log, "graph"), 2);
  EXPECT_EQ(patches, 2) << "those of the second segment";
}

}  // namespace
}  // namespace nimble
