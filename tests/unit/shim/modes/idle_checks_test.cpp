#include "shim/modes/idle_checks.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

// How many checks in a row it takes, with this many matched steps, to find the replay idle.
int checks(IdleChecks& idle, std::uint64_t matched) {
  int count = 1;
  while (!idle.is_idle(matched)) ++count;
  return count;
}

TEST(IdleChecks, AStepThatHasNeverMatchedGetsThatManyChecks) {
  IdleChecks idle(8);
  idle.begin(5);
  EXPECT_EQ(checks(idle, 5), 8);
  EXPECT_EQ(checks(idle, 5), 8) << "the same again";
}

TEST(IdleChecks, OneThatHasMatchedGetsMore) {
  IdleChecks idle(8);
  idle.begin(5);
  EXPECT_FALSE(idle.is_idle(6));
  EXPECT_EQ(checks(idle, 6), 8 * static_cast<int>(IdleChecks::kPatience) - 1);
}

TEST(IdleChecks, EachMatchBeginsAnew) {
  IdleChecks idle(2);
  idle.begin(0);
  for (std::uint64_t matched = 1; matched < 100; ++matched) EXPECT_FALSE(idle.is_idle(matched));
}

TEST(IdleChecks, AnotherReplayHasNotMatchedYet) {
  IdleChecks idle(8);
  idle.begin(0);
  EXPECT_FALSE(idle.is_idle(1));
  idle.begin(1);
  EXPECT_EQ(checks(idle, 1), 8);
}

}  // namespace
}  // namespace nimble::shim
