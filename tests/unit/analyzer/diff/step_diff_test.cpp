#include "analyzer/diff/step_diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::TimedStep;

Analysis steps(const std::function<void(TimedStep&)>& step) {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) step(timed);
  return timed.analyze();
}

// Two branches, and an op that needs the second; `us` on the GPU each.
void branches(TimedStep& step, double us = 3) {
  const double at = step.now();
  step.kernel(kA, kC, at + 3, us, 8);
  step.kernel(kB, kC, at + 3 + us, us, 16);
  step.set(kB, 64, at + 3 + 2 * us, 1);
  step.pass(20);
}

TEST(StepDiff, OfTheSameThereIsNone) {
  const Analysis one = steps([](TimedStep& step) { branches(step); });
  const StepDiff diff = diff_steps(one, one, DeviceModel());
  EXPECT_EQ(diff.same, one.step.period);
  EXPECT_EQ(diff.only[0] + diff.only[1], 0u);
  EXPECT_TRUE(diff.ops.empty());
  EXPECT_TRUE(diff.order.empty());
  for (const FigureDiff& figure : diff.figures) EXPECT_EQ(figure.first, figure.second) << figure.name;
}

TEST(StepDiff, OpsThatCameAndWent) {
  const Analysis one = steps([](TimedStep& step) { branches(step); });
  const Analysis other = steps([](TimedStep& step) {
    step.set(kA, 128, step.now() + 2, 1);
    branches(step);
  });
  const StepDiff diff = diff_steps(one, other, DeviceModel());
  EXPECT_EQ(diff.same, 3u);
  EXPECT_EQ(diff.only[0], 0u);
  EXPECT_EQ(diff.only[1], 1u);
  ASSERT_EQ(diff.ops.size(), 1u);
  EXPECT_EQ(diff.ops[0].ops[0], 0u);
  EXPECT_EQ(diff.ops[0].ops[1], 1u);
  EXPECT_NE(
      diff_text(one, other, diff, 15).find("3 in both, in the same order; 0 only in the first, 1 only in the second"),
      std::string::npos);
}

TEST(StepDiff, OpsThatTookLonger) {
  const Analysis one = steps([](TimedStep& step) { branches(step); });
  const Analysis other = steps([](TimedStep& step) { branches(step, 5); });
  const StepDiff diff = diff_steps(one, other, DeviceModel());
  EXPECT_EQ(diff.same, 3u);
  ASSERT_EQ(diff.ops.size(), 2u);
  EXPECT_EQ(diff.ops[0].gpu_us[1] - diff.ops[0].gpu_us[0], 2);
}

TEST(StepDiff, AnOrderThatIsNew) {
  const Analysis one = steps([](TimedStep& step) { branches(step); });
  const Analysis other = steps([](TimedStep& step) {
    const double at = step.now();
    step.kernel(kA, kC, at + 3, 3, 8);
    step.kernel(kB, kA, at + 6, 3, 16);  // reads what the first has written
    step.set(kB, 64, at + 9, 1);
    step.pass(20);
  });
  const StepDiff diff = diff_steps(one, other, DeviceModel());
  EXPECT_EQ(diff.same, 3u);
  ASSERT_EQ(diff.order.size(), 1u);
  EXPECT_FALSE(diff.order[0].in_first);
  EXPECT_EQ(diff.order[0].dependency->kind, DependencyKind::read_after_write);
  const StepDiff back = diff_steps(other, one, DeviceModel());
  ASSERT_EQ(back.order.size(), 1u);
  EXPECT_TRUE(back.order[0].in_first);
  EXPECT_NE(diff_text(one, other, diff, 15).find("second: "), std::string::npos);
}

TEST(StepDiff, JsonHasTheSame) {
  const Analysis one = steps([](TimedStep& step) { branches(step); });
  const Analysis other = steps([](TimedStep& step) { branches(step, 5); });
  const StepDiff diff = diff_steps(one, other, DeviceModel());
  const auto json = nlohmann::json::parse(diff_json(one, other, diff));
  EXPECT_EQ(json["nimble_diff"], 1);
  EXPECT_EQ(json["same"], 3);
  EXPECT_EQ(json["ops"].size(), diff.ops.size());
  EXPECT_EQ(json["figures"].size(), diff.figures.size());
}

}  // namespace
}  // namespace nimble::analyzer
