#include "analyzer/page/replay_times.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::TimedStep;

Analysis two_branches() {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) {
    const double at = timed.now();
    timed.kernel(kA, kC, at + 4, 10);
    timed.kernel(kB, kC, at + 14, 10);
    timed.pass(30);
  }
  return timed.analyze();
}

TEST(ReplayTimes, EndWhenThePlanSaysThatTheStepDoes) {
  const Analysis analysis = two_branches();
  ASSERT_EQ(analysis.plan.status, kExitOk);
  const ReplayTimes times = replay_times(analysis, DeviceModel());
  const PolicyOutcome* chosen = nullptr;
  for (const PolicyOutcome& outcome : analysis.plan.policies)
    if (outcome.policy == analysis.plan.chosen) chosen = &outcome;
  ASSERT_NE(chosen, nullptr);
  EXPECT_NEAR(times.step_us, chosen->step_us, 0.001);
}

TEST(ReplayTimes, KeepTheOrderThatTheScheduleEnforces) {
  const Analysis analysis = two_branches();
  const ReplayTimes times = replay_times(analysis, DeviceModel());
  ASSERT_EQ(times.begin_us.size(), analysis.step.period);
  for (const auto& [from, to] : analysis.order.reduced.edges()) EXPECT_LE(times.end_us[from], times.begin_us[to]);
  // The branches overlap, on lanes of their own.
  EXPECT_LT(std::max(times.begin_us[0], times.begin_us[1]), std::min(times.end_us[0], times.end_us[1]));
  EXPECT_NE(times.lane[0], times.lane[1]);
  for (const ReplayTimes::Launch& launch : times.launches) EXPECT_LT(launch.begin_us, launch.end_us);
}

TEST(ReplayTimes, WithoutAScheduleThereAreNone) {
  Analysis analysis = two_branches();
  analysis.plan.status = kExitUnschedulable;
  EXPECT_TRUE(replay_times(analysis, DeviceModel()).begin_us.empty());
}

}  // namespace
}  // namespace nimble::analyzer
