#include "analyzer/graph/transitive_reduction.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

// An edge is needed where no other path joins its ends.
std::vector<Dag::Edge> needed_edges(const Dag& dag) {
  auto reached = test::closure(dag);
  std::vector<Dag::Edge> needed;
  for (const auto& [from, to] : dag.edges()) {
    bool other = false;
    for (std::uint32_t between : dag.successors(from)) other = other || (between != to && reached[between][to]);
    if (!other) needed.push_back({from, to});
  }
  return needed;
}

TEST(Reduce, MatchesTheReferenceOnRandomGraphs) {
  Random random(1);
  for (int round = 0; round < 4000; ++round) {
    std::uint32_t nodes = 1 + test::below(random, round % 10 == 0 ? 60 : 14);
    Dag dag = test::random_dag(random, nodes, static_cast<double>(random() % 100) / 100.0);
    ASSERT_EQ(transitive_reduction(dag).edges(), needed_edges(dag)) << "round " << round;
  }
}

// Chains that join in nodes which everything before reaches, again and again: what the floor is for.
TEST(Reduce, MatchesTheReferenceAroundBarriers) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    std::uint32_t nodes = 2 + test::below(random, 50);
    std::vector<Dag::Edge> edges;
    std::uint32_t barrier = 0;
    for (std::uint32_t node = 1; node < nodes; ++node) {
      bool is_barrier = random() % 6 == 0;
      // Now and then a node that does not come after the barrier.
      if (random() % 8 != 0) edges.push_back({barrier, node});
      for (std::uint32_t before = 0; before < node; ++before)
        if (is_barrier || random() % 12 == 0) edges.push_back({before, node});
      if (is_barrier) barrier = node;
    }
    Dag dag(nodes, edges);
    ASSERT_EQ(transitive_reduction(dag).edges(), needed_edges(dag)) << "round " << round;
  }
}

TEST(Reduce, TakesLongChainsWithShortcuts) {
  constexpr std::uint32_t kNodes = 200'000;
  std::vector<Dag::Edge> edges;
  for (std::uint32_t node = 1; node < kNodes; ++node) {
    edges.push_back({node - 1, node});
    if (node > 9) edges.push_back({node - 10, node});
  }
  EXPECT_EQ(transitive_reduction(Dag(kNodes, edges)).edges().size(), kNodes - 1);
}

}  // namespace
}  // namespace nimble::analyzer
