#include "analyzer/ledger/repeat_times.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::TimedStep;

// Steps of two kernels, each so long on the GPU; negative: not timed.
RepeatTimes of_steps(const std::vector<double>& lengths) {
  TimedStep timed;
  for (const double us : lengths) {
    const double at = timed.now() + 2;
    timed.kernel(kA, kB, at, us);
    timed.kernel(kB, kC, at + us, us);
    timed.pass(2 * std::max(us, 0.0));
  }
  const Analysis analysis = timed.analyze();
  EXPECT_EQ(analysis.step.begins.size(), lengths.size());
  return median_repeat(analysis.input.trace(), analysis.step);
}

TEST(RepeatTimes, TheMedianOfThoseThatAreFollowed) {
  const RepeatTimes times = of_steps({10, 40, 20, 30, 99});  // the last one is followed by nothing
  EXPECT_EQ(times.repeats, 4u);
  EXPECT_EQ(times.occurrence, 3u);
  EXPECT_NE(times.next_call, kNone);
  EXPECT_EQ(times.until_us - times.from_us, 62);  // two calls of 1 us each, and what the program passes
}

TEST(RepeatTimes, WhatIsNotTimedDoesNotCount) {
  const RepeatTimes times = of_steps({-1, -1, 20, -1, 30});
  EXPECT_EQ(times.repeats, 2u);  // neither is followed by one that is timed
  EXPECT_EQ(times.next_call, kNone);
  EXPECT_EQ(times.until_us - times.from_us, 60);
}

TEST(RepeatTimes, WithoutTimesThereIsNone) { EXPECT_EQ(of_steps({-1, -1, -1}).repeats, 0u); }

}  // namespace
}  // namespace nimble::analyzer
