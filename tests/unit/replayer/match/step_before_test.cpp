#include "replayer/match/step_before.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

Schedule carrying() {
  Schedule s;
  s.carries = true;
  return s;
}

TEST(StepBefore, AStepThatCarriesPointersNeedsAWholeOneBefore) {
  StepBefore before(carrying());
  EXPECT_FALSE(before.begin_step());
  before.end_step();
  EXPECT_TRUE(before.begin_step());
  EXPECT_FALSE(before.begin_step());  // the one before has not ended
  before.end_step();
  before.refuse_last();
  EXPECT_FALSE(before.begin_step());
}

TEST(StepBefore, WhatComesInBetweenDisturbs) {
  StepBefore before(carrying());
  before.end_step();
  EXPECT_TRUE(before.disturb());
  EXPECT_FALSE(before.begin_step());
  before.disturb();  // within the step, after which the next one begins
  before.end_step();
  EXPECT_FALSE(before.begin_step());
}

TEST(StepBefore, OthersNeedNone) {
  StepBefore before{Schedule()};
  EXPECT_TRUE(before.begin_step());
  EXPECT_FALSE(before.disturb());
  EXPECT_TRUE(before.begin_step());
}

}  // namespace
}  // namespace nimble
