#include "replayer/tune/tuner.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace nimble {
namespace {

// Steps whose times come `late` steps afterwards. `us` says what a step of each way takes.
struct Program {
  explicit Program(Tune when, std::map<Way, double> takes) : tuner(when), us(std::move(takes)) {}

  void run(std::uint32_t steps) {
    for (std::uint32_t i = 0; i < steps; ++i, ++now) {
      const Tuner::Step step = tuner.next();
      ++count[step.way];
      if (step.timed) pending.push_back({step.way, now});
      tuner.done(!pending.empty());
      while (!pending.empty() && now - pending.front().second >= late) {
        tuner.add(pending.front().first, us[pending.front().first]);
        pending.erase(pending.begin());
      }
    }
  }

  Tuner tuner;
  std::map<Way, double> us;
  std::uint32_t late = 2, now = 0;  // steps
  std::vector<std::pair<Way, std::uint32_t>> pending;
  std::map<Way, int> count;
};

constexpr std::uint32_t kTrial = Tuner::kTurns * kWays * (Tuner::kWarmUp + Tuner::kTimed);

TEST(Tuner, OffIsTheScheduleAlways) {
  Program program(Tune::off, {{Way::own, 1}, {Way::one_stream, 1}, {Way::schedule, 9}});
  program.run(1000);
  EXPECT_EQ(program.count[Way::schedule], 1000);
  EXPECT_EQ(program.tuner.decisions(), 0u);
  EXPECT_FALSE(program.tuner.tries(Way::one_stream));
}

TEST(Tuner, TheFastestStays) {
  for (Way best : {Way::own, Way::one_stream, Way::schedule}) {
    Program program(Tune::start, {{Way::own, 5}, {Way::one_stream, 5.5}, {Way::schedule, 6}});
    program.us[best] = 4;
    program.run(kTrial);
    EXPECT_EQ(program.count[Way::own], static_cast<int>(kTrial / kWays));
    program.run(Tuner::kPatience);
    EXPECT_EQ(program.tuner.decisions(), 1u);
    EXPECT_EQ(program.tuner.settled(), best);
    EXPECT_EQ(program.tuner.ends_replay(), best == Way::own);
    EXPECT_EQ(program.tuner.next().way, best);
    EXPECT_EQ(program.tuner.medians()[static_cast<std::size_t>(best)], 4);
  }
}

TEST(Tuner, AGraphThatIsAsFastStaysAndTheScheduleBeforeOneStream) {
  Program program(Tune::start, {{Way::own, 5}, {Way::one_stream, 5}, {Way::schedule, 5}});
  program.run(kTrial + Tuner::kPatience);
  EXPECT_EQ(program.tuner.settled(), Way::schedule);
}

TEST(Tuner, AGraphMayHaveToGainSomething) {
  for (const auto& [takes, best] : {std::pair{99.5, Way::own}, {99.0, Way::schedule}, {98.0, Way::schedule}}) {
    Program program(Tune::start, {{Way::own, 100}, {Way::one_stream, 99.5}, {Way::schedule, takes}});
    program.tuner = Tuner(Tune::start, 0.01);
    program.run(kTrial + Tuner::kPatience);
    EXPECT_EQ(program.tuner.settled(), best) << takes;
  }
  Program program(Tune::start, {{Way::own, 100}, {Way::one_stream, 98}, {Way::schedule, 98.5}});
  program.tuner = Tuner(Tune::start, 0.01);
  program.run(kTrial + Tuner::kPatience);
  EXPECT_EQ(program.tuner.settled(), Way::one_stream) << "of graphs the fastest";
}

// As where kernels follow each other sooner from the second turn on, of which the program's own order has more.
TEST(Tuner, WhatAGraphHasToGainItGainsInEachTurn) {
  for (const auto& [first_turns, last_turns, best] :
       {std::tuple{90., 98., Way::schedule}, {90., 99.5, Way::own}, {99.5, 90., Way::own}, {101., 90., Way::own}}) {
    Program program(Tune::start, {{Way::own, 100}, {Way::one_stream, 200}, {Way::schedule, first_turns}});
    program.tuner = Tuner(Tune::start, 0.01);
    program.late = 0;
    program.run(kTrial / Tuner::kTurns);
    program.us[Way::schedule] = last_turns;
    program.run(kTrial + Tuner::kPatience);
    EXPECT_EQ(program.tuner.settled(), best) << first_turns << ", then " << last_turns;
    const std::array<double, Tuner::kTurns> turns = {first_turns, last_turns, last_turns};
    EXPECT_EQ(program.tuner.turns(Way::schedule), turns);
  }
  // Without a required gain the median of all decides.
  Program program(Tune::start, {{Way::own, 100}, {Way::one_stream, 200}, {Way::schedule, 101}});
  program.late = 0;
  program.run(kTrial / Tuner::kTurns);
  program.us[Way::schedule] = 90;
  program.run(kTrial + Tuner::kPatience);
  EXPECT_EQ(program.tuner.settled(), Way::schedule);
}

// A turn with a missing time is no reason against a graph.
TEST(Tuner, ATurnThatWasNotTimedToItsEndDecidesNothing) {
  Tuner tuner(Tune::start, 0.01);
  tuner.exclude(Way::one_stream);
  std::map<Way, int> steps;
  for (std::uint32_t i = 0; i < 2 * kTrial + Tuner::kPatience && tuner.decisions() == 0; ++i) {
    const Tuner::Step step = tuner.next();
    if (step.timed && ++steps[step.way] != 8) tuner.add(step.way, step.way == Way::own ? 100 : 98);
    tuner.done(false);
  }
  EXPECT_EQ(tuner.turns(Way::schedule)[Tuner::kTurns - 1], -1);
  EXPECT_EQ(tuner.settled(), Way::schedule);
}

TEST(Tuner, OutliersDecideNothing) {
  Program program(Tune::start, {{Way::own, 5}, {Way::one_stream, 6}, {Way::schedule, 4}});
  int steps = 0;
  for (std::uint32_t i = 0; i < kTrial + Tuner::kPatience; ++i) {
    const Tuner::Step step = program.tuner.next();
    program.tuner.done(false);
    if (step.timed) program.tuner.add(step.way, ++steps % 4 == 0 ? 900 : program.us[step.way]);
  }
  EXPECT_EQ(program.tuner.settled(), Way::schedule);
}

TEST(Tuner, WhereNoTimesComeTheScheduleStaysInTheEnd) {
  Tuner tuner(Tune::start);
  for (std::uint32_t i = 0; i < Tuner::kMostTrials * (kTrial + Tuner::kPatience); ++i) {
    ASSERT_EQ(tuner.decisions(), 0u) << i;
    tuner.done(false);
  }
  EXPECT_EQ(tuner.decisions(), 1u);
  EXPECT_EQ(tuner.settled(), Way::schedule);
  EXPECT_EQ(tuner.text(), "nothing could be timed: the schedule stays");
}

// A program that does not wait for the GPU is far ahead of it.
TEST(Tuner, NothingIsDecidedWhileTimesAreLate) {
  Program program(Tune::start, {{Way::own, 6}, {Way::one_stream, 5}, {Way::schedule, 3}});
  program.late = 1'000'000;
  program.run(kTrial + 100000);
  EXPECT_EQ(program.tuner.decisions(), 0u);
  program.late = 0;
  program.run(1);
  EXPECT_EQ(program.tuner.decisions(), 1u);
  EXPECT_EQ(program.tuner.settled(), Way::schedule);
}

TEST(Tuner, TimesOfSomeWaysAloneDecideNothing) {
  Tuner tuner(Tune::start);
  for (std::uint32_t i = 0; i < kTrial + Tuner::kPatience; ++i) {
    const Tuner::Step step = tuner.next();
    tuner.done(false);
    if (step.timed && step.way == Way::own) tuner.add(step.way, 1);
  }
  EXPECT_EQ(tuner.decisions(), 0u) << "but tried again";
  EXPECT_EQ(tuner.next().way, Way::own);
}

TEST(Tuner, AnUnavailableWayIsNotTried) {
  Program program(Tune::start, {{Way::own, 5}, {Way::schedule, 4}});
  program.run(3);
  program.tuner.exclude(Way::one_stream);
  program.run(kTrial + Tuner::kPatience);
  EXPECT_EQ(program.count[Way::one_stream], 0);
  EXPECT_EQ(program.tuner.settled(), Way::schedule);
  EXPECT_EQ(program.tuner.text(), "the schedule is the fastest: 4.0 us a step; the program's own order 5.0");
  // Nor is it kept.
  Program other(Tune::start, {{Way::own, 5}, {Way::one_stream, 3}, {Way::schedule, 4}});
  other.run(kTrial + Tuner::kPatience);
  ASSERT_EQ(other.tuner.next().way, Way::one_stream);
  other.tuner.exclude(Way::one_stream);
  other.count.clear();
  other.run(kTrial + Tuner::kPatience);
  EXPECT_EQ(other.count[Way::one_stream], 0);
  EXPECT_EQ(other.tuner.settled(), Way::schedule);
}

TEST(Tuner, WhereStepsBecomeSlowerItIsTriedAgain) {
  Program program(Tune::start, {{Way::own, 5}, {Way::one_stream, 6}, {Way::schedule, 4}});
  program.run(kTrial + Tuner::kPatience);
  ASSERT_EQ(program.tuner.settled(), Way::schedule);
  program.us[Way::schedule] = 4.5;  // within what is allowed
  program.run(Tuner::kWatchEvery * 20);
  EXPECT_EQ(program.tuner.decisions(), 1u);
  program.us[Way::schedule] = 9;
  program.run(Tuner::kWatchEvery * (Tuner::kWatched + 3) + kTrial + Tuner::kPatience);
  EXPECT_EQ(program.tuner.decisions(), 2u);
  EXPECT_TRUE(program.tuner.ends_replay());
}

TEST(Tuner, TrialsAreBounded) {
  Program program(Tune::start, {{Way::own, 1e9}, {Way::one_stream, 2e9}, {Way::schedule, 1}});
  for (int i = 0; i < 100000; ++i) {
    program.us[Way::schedule] *= 1.001;
    program.run(1);
  }
  EXPECT_EQ(program.tuner.decisions(), Tuner::kMostTrials);
}

TEST(Tuner, AlwaysComesBackFromTheProgramsOwnOrder) {
  Program program(Tune::always, {{Way::own, 4}, {Way::one_stream, 6}, {Way::schedule, 5}});
  program.run(kTrial + Tuner::kPatience);
  ASSERT_EQ(program.tuner.settled(), Way::own);
  EXPECT_FALSE(program.tuner.ends_replay());
  program.us[Way::own] = 7;
  program.run(Tuner::kTryAgain + kTrial + Tuner::kPatience);
  EXPECT_EQ(program.tuner.settled(), Way::schedule);
}

}  // namespace
}  // namespace nimble
