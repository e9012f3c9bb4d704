#include "shim/check/launch_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nimble::shim {
namespace {

std::vector<bool> choose(std::uint64_t every, std::uint64_t seed, int launches) {
  LaunchChoice choice(every, seed);
  std::vector<bool> chosen;
  for (int i = 0; i < launches; ++i) chosen.push_back(choice.chooses(i % 3));
  return chosen;
}

TEST(LaunchChoice, TheFirstOfEachKind) {
  const std::vector<bool> chosen = choose(0, 1, 300);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(chosen[i], i < 3) << i;
}

TEST(LaunchChoice, SomeOfTheOthers) {
  const std::vector<bool> chosen = choose(10, 1, 10'000);
  const auto count = std::count(chosen.begin(), chosen.end(), true);
  EXPECT_GT(count, 850);
  EXPECT_LT(count, 1150);
  EXPECT_EQ(chosen, choose(10, 1, 10'000));
  EXPECT_NE(chosen, choose(10, 2, 10'000));
  const std::vector<bool> all = choose(1, 1, 100);
  EXPECT_EQ(std::count(all.begin(), all.end(), true), 100);
}

TEST(LaunchChoice, WhatWasMissedIsStillToCome) {
  LaunchChoice choice(0, 1);
  EXPECT_TRUE(choice.chooses(7));
  EXPECT_FALSE(choice.chooses(7));
  choice.missed(7);
  EXPECT_TRUE(choice.chooses(7));
}

}  // namespace
}  // namespace nimble::shim
