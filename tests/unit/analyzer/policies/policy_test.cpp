#include "analyzer/policies/policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "analyzer/graph/transitive_reduction.h"
#include "nimble/internal/trace.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

// What a schedule enforces: all dependencies, all lanes in program order, and nothing that these do not imply.
TEST(Policies, EnforceDependenciesAndLanesAndNothingElse) {
  Random random(7);
  for (int round = 0; round < 800; ++round) {
    std::uint32_t nodes = 1 + test::below(random, 20);
    Dag reduced = transitive_reduction(test::random_dag(random, nodes, static_cast<double>(random() % 60) / 100.0));
    for (std::string_view name : kPolicyNames) {
      Assignment assignment = make_policy(name)->assign(reduced);
      ASSERT_EQ(assignment.lane.size(), nodes);
      std::vector<Dag::Edge> edges = reduced.edges();
      for (std::uint32_t a = 0; a < nodes; ++a) {
        ASSERT_LT(assignment.lane[a], assignment.lanes);
        for (std::uint32_t b = a + 1; b < nodes; ++b)
          if (assignment.lane[a] == assignment.lane[b]) edges.push_back({a, b});
      }
      Dag all(nodes, edges);
      ASSERT_EQ(enforced_order(reduced, assignment).edges(), transitive_reduction(all).edges()) << name;
    }
  }
}

// Whatever the policy and however few its lanes; with lanes to spare, at no cost.
TEST(Policies, KeepWhatMayBeTalkingToOthersOnOneLane) {
  Random random(9);
  int apart = 0;
  for (int round = 0; round < 600; ++round) {
    std::uint32_t nodes = 2 + test::below(random, 24);
    std::vector<Dag::Edge> edges = test::random_dag(random, nodes, static_cast<double>(random() % 40) / 100.0).edges();
    std::vector<std::uint8_t> communicate(nodes, 0);
    std::uint32_t last = kNone;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      if (random() % 3 != 0) continue;
      communicate[node] = 1;
      if (last != kNone) edges.push_back({last, node});
      last = node;
    }
    Dag reduced = transitive_reduction(Dag(nodes, std::move(edges)));
    Workload work;
    work.max_lanes = 1 + test::below(random, 6);
    work.communicate = communicate;
    for (std::string_view name : kPolicyNames) {
      Assignment assignment = make_policy(name)->assign(reduced, work);
      std::uint32_t lane = kNone;
      std::vector<bool> used(assignment.lanes, false);
      for (std::uint32_t node = 0; node < nodes; ++node) {
        ASSERT_LT(assignment.lane[node], assignment.lanes);
        used[assignment.lane[node]] = true;
        if (communicate[node] == 0) continue;
        ASSERT_TRUE(lane == kNone || assignment.lane[node] == lane) << name << " round " << round;
        lane = assignment.lane[node];
      }
      ASSERT_EQ(std::count(used.begin(), used.end(), false), 0) << name;
      ASSERT_LE(assignment.lanes, name == "cost" ? work.max_lanes : name == "levels" ? 4 : nodes) << name;
      if (name != "nimble" && name != "greedy") continue;
      ASSERT_EQ(enforced_order(reduced, assignment).edges(), reduced.edges()) << name << " round " << round;
      apart += assignment.lanes > 1;
    }
  }
  EXPECT_GT(apart, 600);
}

TEST(Policies, KnowTheirNames) {
  for (std::string_view name : kPolicyNames) EXPECT_EQ(make_policy(name)->name(), name);
  EXPECT_EQ(make_policy("fastest"), nullptr);
}

TEST(Policies, SpreadADiamondAsTheySay) {
  Dag diamond(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  auto lanes = [&](std::string_view name) { return make_policy(name)->assign(diamond).lane; };
  EXPECT_EQ(lanes("single"), (std::vector<std::uint32_t>{0, 0, 0, 0}));
  EXPECT_EQ(lanes("levels"), (std::vector<std::uint32_t>{0, 0, 1, 0}));
  EXPECT_EQ(lanes("greedy"), (std::vector<std::uint32_t>{0, 0, 1, 0}));
  EXPECT_EQ(lanes("nimble"), (std::vector<std::uint32_t>{0, 0, 1, 0}));
}

// Opara's rule never puts independent ops on one lane either.
TEST(Policies, GreedyKeepsAllConcurrency) {
  Random random(8);
  for (int round = 0; round < 800; ++round) {
    Dag reduced = transitive_reduction(test::random_dag(random, 1 + test::below(random, 15), 0.3));
    auto reached = test::closure(reduced);
    Assignment assignment = make_policy("greedy")->assign(reduced);
    for (std::uint32_t a = 0; a < reduced.nodes(); ++a)
      for (std::uint32_t b = a + 1; b < reduced.nodes(); ++b)
        ASSERT_TRUE(assignment.lane[a] != assignment.lane[b] || reached[a][b]);
  }
}

}  // namespace
}  // namespace nimble::analyzer
