#include "analyzer/given_order.h"

#include <gtest/gtest.h>

#include <random>

namespace nimble::analyzer {
namespace {

using Pair = std::optional<std::pair<std::uint32_t, std::uint32_t>>;

TEST(GivenOrder, WhatIsNeededMayBeGivenByWayOfOthers) {
  const std::vector<bool> all(4, true), none(4, false);
  const Dag given(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  EXPECT_EQ(left_unordered(Dag(4, {{0, 3}, {1, 3}}), given, all, none), Pair());
  EXPECT_EQ(left_unordered(Dag(4, {{0, 3}, {1, 2}}), given, all, none), Pair({1, 2}));
}

TEST(GivenOrder, WhatMayWaitMustBeOrderedWithAll) {
  const std::vector<bool> all(4, true);
  const Dag given(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  EXPECT_EQ(left_unordered(Dag(4, {}), given, all, {true, false, false, true}), Pair());
  EXPECT_EQ(left_unordered(Dag(4, {}), given, all, {false, false, true, false}), Pair({1, 2}));
  EXPECT_EQ(left_unordered(Dag(4, {}), given, all, {false, true, false, false}), Pair({1, 2}));
}

TEST(GivenOrder, MemoryHandsOnWhatIsNeeded) {
  // Op 1 releases what op 0 has used, and op 2 gets it for op 3.
  const Dag needed(4, {{0, 1}, {1, 2}, {2, 3}});
  const std::vector<bool> works{true, false, false, true}, none(4, false);
  EXPECT_EQ(left_unordered(needed, Dag(4, {}), works, none), Pair({0, 3}));
  EXPECT_EQ(left_unordered(needed, Dag(4, {{0, 3}}), works, none), Pair());
}

// Against paths looked for one by one.
TEST(GivenOrder, RandomGraphs) {
  std::mt19937 random(7);
  const auto reaches = [](const Dag& dag, std::uint32_t from, std::uint32_t to) {
    std::vector<std::uint32_t> open{from};
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      if (at == to) return true;
      for (const std::uint32_t next : dag.successors(at)) open.push_back(next);
    }
    return false;
  };
  int none = 0, some = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::uint32_t ops = 2 + random() % 7;
    std::vector<Dag::Edge> needed, given;
    std::vector<bool> works(ops), may_wait(ops);
    for (std::uint32_t a = 0; a < ops; ++a) {
      works[a] = random() % 5 != 0;
      may_wait[a] = works[a] && random() % 9 == 0;
    }
    for (std::uint32_t a = 0; a < ops; ++a)
      for (std::uint32_t b = a + 1; b < ops; ++b) {
        if (random() % 4 == 0) needed.push_back({a, b});
        if (works[a] && works[b] && random() % 2) given.push_back({a, b});
      }
    const Dag wants(ops, needed), has(ops, given);
    const auto wrong = [&](std::uint32_t a, std::uint32_t b) {
      if (!works[a] || !works[b] || reaches(has, a, b)) return false;
      return reaches(wants, a, b) || may_wait[a] || may_wait[b];
    };
    bool expected = false;
    for (std::uint32_t a = 0; a < ops; ++a)
      for (std::uint32_t b = a + 1; b < ops; ++b) expected = expected || wrong(a, b);
    const Pair found = left_unordered(wants, has, works, may_wait);
    ASSERT_EQ(found.has_value(), expected);
    if (found) {
      EXPECT_TRUE(wrong(found->first, found->second));
    }
    ++(expected ? some : none);
  }
  EXPECT_GT(some, 300);
  EXPECT_GT(none, 300);
}

}  // namespace
}  // namespace nimble::analyzer
