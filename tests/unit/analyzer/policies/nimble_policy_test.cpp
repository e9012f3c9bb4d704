// Algorithm 1 against brute force: the two claims of the paper, on every small graph that a seed brings up.

#include "analyzer/policies/nimble_policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "analyzer/graph/concurrency.h"
#include "analyzer/graph/matching.h"
#include "analyzer/graph/transitive_reduction.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

bool has_full_concurrency(const Assignment& assignment, const std::vector<std::vector<bool>>& reached) {
  for (std::uint32_t a = 0; a < reached.size(); ++a)
    for (std::uint32_t b = a + 1; b < reached.size(); ++b)
      if (assignment.lane[a] == assignment.lane[b] && !reached[a][b]) return false;
  return true;
}

// Of all ways to put the nodes on lanes so that no two independent ones share one, the fewest edges of the minimum
// equivalent graph between lanes. Lanes are tried as set partitions: each node joins an earlier lane or opens the next.
class BruteForce {
 public:
  explicit BruteForce(const Dag& reduced)
      : reduced_(reduced), reached_(test::closure(reduced)), lane_(reduced.nodes()) {
    search(0, 0, 0);
  }
  std::uint32_t fewest() const { return fewest_; }

 private:
  void search(std::uint32_t node, std::uint32_t lanes, std::uint32_t crossing) {
    if (crossing >= fewest_) return;
    if (node == reduced_.nodes()) {
      fewest_ = crossing;
      return;
    }
    for (std::uint32_t lane = 0; lane <= lanes; ++lane) {
      bool allowed = true;
      for (std::uint32_t before = 0; before < node; ++before)
        allowed = allowed && (lane_[before] != lane || reached_[before][node]);
      if (!allowed) continue;
      lane_[node] = lane;
      std::uint32_t more = 0;
      for (std::uint32_t from : reduced_.predecessors(node)) more += lane_[from] != lane;
      search(node + 1, std::max(lanes, lane + 1), crossing + more);
    }
  }

  const Dag& reduced_;
  std::vector<std::vector<bool>> reached_;
  std::vector<std::uint32_t> lane_;
  std::uint32_t fewest_ = std::numeric_limits<std::uint32_t>::max();
};

std::uint32_t matching_size(const Dag& reduced) {
  return maximum_matching(reduced.nodes(), reduced.nodes(),
                          [&](std::uint32_t node) { return reduced.successors(node); })
      .size;
}

TEST(NimblePolicy, KeepsAllConcurrencyWithTheFewestSynchronizations) {
  Random random(4);
  for (int round = 0; round < 6000; ++round) {
    std::uint32_t nodes = 1 + test::below(random, 9);
    Dag reduced = transitive_reduction(test::random_dag(random, nodes, static_cast<double>(random() % 100) / 100.0));
    Assignment assignment = NimblePolicy().assign(reduced);
    auto reached = test::closure(reduced);
    ASSERT_TRUE(has_full_concurrency(assignment, reached)) << "round " << round;
    std::uint32_t synchronizations = count_synchronizations(reduced, assignment);
    ASSERT_EQ(synchronizations, reduced.edges().size() - matching_size(reduced));
    ASSERT_EQ(assignment.lanes, nodes - matching_size(reduced));
    ASSERT_EQ(synchronizations, BruteForce(reduced).fewest()) << "round " << round;
    // The lanes add no order of their own.
    ASSERT_EQ(enforced_order(reduced, assignment).edges(), reduced.edges());
  }
}

TEST(NimblePolicy, HoldsOnLargerGraphs) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    std::uint32_t nodes = 50 + test::below(random, 250);
    Dag reduced = transitive_reduction(test::random_dag(random, nodes, static_cast<double>(1 + random() % 20) / 200.0));
    Assignment assignment = NimblePolicy().assign(reduced);
    ASSERT_TRUE(has_full_concurrency(assignment, test::closure(reduced)));
    ASSERT_EQ(count_synchronizations(reduced, assignment), reduced.edges().size() - matching_size(reduced));
  }
}

// With full concurrency there are at least as many lanes as ops can run side by side.
TEST(Concurrency, IsTheLargestSetOfIndependentOps) {
  Random random(6);
  for (int round = 0; round < 1500; ++round) {
    std::uint32_t nodes = 1 + test::below(random, 10);
    Dag dag = test::random_dag(random, nodes, static_cast<double>(random() % 100) / 100.0);
    auto reached = test::closure(dag);
    std::vector<std::uint8_t> counts(nodes);
    for (auto& each : counts) each = random() % 4 != 0;
    std::uint32_t largest = 0;
    for (std::uint32_t set = 0; set < 1u << nodes; ++set) {
      bool independent = true;
      for (std::uint32_t a = 0; a < nodes && independent; ++a) {
        if ((set >> a & 1) == 0) continue;
        independent = counts[a];
        for (std::uint32_t b = a + 1; b < nodes; ++b)
          if (set >> b & 1) independent = independent && !reached[a][b];
      }
      if (independent) largest = std::max(largest, static_cast<std::uint32_t>(__builtin_popcount(set)));
    }
    Concurrency found = max_concurrency(dag, counts);
    ASSERT_TRUE(found.exact);
    ASSERT_EQ(found.nodes, largest) << "round " << round;
    ASSERT_LE(largest, NimblePolicy().assign(transitive_reduction(dag)).lanes);
  }
}

}  // namespace
}  // namespace nimble::analyzer
