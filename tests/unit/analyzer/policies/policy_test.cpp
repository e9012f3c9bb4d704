#include "analyzer/policies/policy.h"

#include <gtest/gtest.h>

#include "analyzer/reduce.h"
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
