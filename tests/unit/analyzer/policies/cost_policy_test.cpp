#include "analyzer/policies/cost_policy.h"

#include <gtest/gtest.h>

#include "analyzer/graph/matching.h"
#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/policies/nimble_policy.h"
#include "analyzer/policies/segment_plan.h"
#include "bench/policies/graphs.h"
#include "nimble/internal/schedule.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

std::vector<OpCost> random_costs(Random& random, std::uint32_t nodes) {
  std::vector<OpCost> costs(nodes);
  for (OpCost& cost : costs) {
    cost.device_us = static_cast<double>(1 + random() % 20);
    cost.engine = random() % 8 == 0 ? Engine::device_to_device : Engine::multiprocessors;
    cost.multiprocessors = 1 + static_cast<int>(random() % 132);
    cost.waves = cost.multiprocessors == 132 ? 1 + static_cast<int>(random() % 4) : 1;
    cost.bandwidth = random() % 3 == 0 ? static_cast<double>(random() % 101) / 100 : 0;
  }
  return costs;
}

SegmentPlan plan_of(std::string_view policy, const Dag& dag, const std::vector<OpCost>& costs, std::uint32_t lanes) {
  DeviceModel device;
  return make_plan(device, dag, costs, make_policy(policy)->assign(dag, {costs, device, lanes}));
}

// With as many lanes as any other policy takes, it is predicted to be no worse than any; and with few it keeps to them.
TEST(CostPolicy, IsNoWorseThanTheOthersAndKeepsToItsLanes) {
  Random random(41);
  int better = 0, limited = 0;
  for (int round = 0; round < 400; ++round) {
    std::uint32_t nodes = 1 + test::below(random, 40);
    Dag dag = transitive_reduction(test::random_dag(random, nodes, static_cast<double>(random() % 30) / 100.0));
    std::vector<OpCost> costs = random_costs(random, nodes);
    SegmentPlan free = plan_of("cost", dag, costs, nodes);
    for (std::string_view other : kPolicyNames) {
      SegmentPlan plan = plan_of(other, dag, costs, nodes);
      ASSERT_LE(free.predicted_us, plan.predicted_us * (1 + 1e-9)) << other << ", round " << round;
      better += free.predicted_us < plan.predicted_us * 0.99;
    }
    std::uint32_t most = 1 + test::below(random, 5);
    SegmentPlan few = plan_of("cost", dag, costs, most);
    ASSERT_LE(few.assignment.lanes, most);
    limited += few.assignment.lanes < free.assignment.lanes;
    for (const SegmentPlan* plan : {&free, &few}) {
      std::vector<std::uint32_t> place(nodes, kNone);
      for (std::uint32_t i = 0; i < nodes; ++i) place[plan->order[i]] = i;
      for (const auto& [from, to] : plan->enforced.edges()) ASSERT_LT(place[from], place[to]);
      for (std::uint8_t priority : plan->assignment.priority) ASSERT_LE(priority, kMaxPriority);
    }
    Assignment again = plan_of("cost", dag, costs, most).assignment;
    ASSERT_EQ(again.lane, few.assignment.lane);
    ASSERT_EQ(again.priority, few.assignment.priority);
  }
  EXPECT_GT(better, 400);
  EXPECT_GT(limited, 100);
}

TEST(CostPolicy, PutsTheCriticalChainFirst) {
  // A kernel of many waves, and beside it a chain that takes as long; after both, a last op.
  OpCost large, small;
  large.engine = small.engine = Engine::multiprocessors;
  large.device_us = 60;
  large.multiprocessors = 132;
  large.waves = 8;
  small.device_us = 10;
  small.multiprocessors = 1;
  std::vector<Dag::Edge> edges{{0, 7}};
  for (std::uint32_t i = 1; i < 7; ++i) edges.push_back({i, i + 1});
  Dag dag(8, edges);
  std::vector<OpCost> costs(8, small);
  costs[0] = large;
  SegmentPlan nimble = plan_of("nimble", dag, costs, 8), cost = plan_of("cost", dag, costs, 8);
  EXPECT_LT(cost.predicted_us, 0.75 * nimble.predicted_us);
  ASSERT_FALSE(cost.assignment.priority.empty());
  EXPECT_GT(cost.assignment.priority[1], cost.assignment.priority[0]);
}

TEST(CostPolicy, PutsBandwidthBoundOpsOneAfterAnother) {
  // Two heavy ops, of which the first starts a chain: one after the other, the chain can begin at half time.
  OpCost heavy, light;
  heavy.engine = light.engine = Engine::multiprocessors;
  heavy.device_us = 20;
  heavy.multiprocessors = 40;
  heavy.bandwidth = 1;
  light.device_us = 20;
  light.multiprocessors = 4;
  Dag dag(3, {{0, 2}});
  SegmentPlan cost = plan_of("cost", dag, {heavy, heavy, light}, 8),
              nimble = plan_of("nimble", dag, {heavy, heavy, light}, 8);
  EXPECT_EQ(cost.assignment.lane[0], cost.assignment.lane[1]);
  EXPECT_LT(cost.predicted_us, nimble.predicted_us - 10);
}

// Of the graphs that the bench compares policies on: Algorithm 1 needs |E| - |M| synchronisations, and never puts two
// independent ops on one lane.
TEST(PolicyGraphs, NimbleMeetsItsTheorem) {
  for (const bench::OpGraph& graph : bench::all_graphs()) {
    const Dag& dag = graph.dag;
    EXPECT_EQ(transitive_reduction(dag).edges(), dag.edges()) << graph.name;
    Assignment assignment = NimblePolicy().assign(dag);
    Matching matching =
        maximum_matching(dag.nodes(), dag.nodes(), [&](std::uint32_t node) { return dag.successors(node); });
    EXPECT_EQ(count_synchronizations(dag, assignment), dag.edges().size() - matching.size) << graph.name;
    EXPECT_EQ(assignment.lanes, dag.nodes() - matching.size) << graph.name;
    auto reached = test::closure(dag);
    std::vector<std::uint32_t> last(assignment.lanes, kNone);
    for (std::uint32_t node = 0; node < dag.nodes(); ++node) {
      std::uint32_t& before = last[assignment.lane[node]];
      // Neighbours of a lane are enough: what comes before one of them comes before the other.
      if (before != kNone) {
        ASSERT_TRUE(reached[before][node]) << graph.name << ' ' << before << ' ' << node;
      }
      before = node;
    }
  }
}

TEST(PolicyGraphs, AreOfTheSizesThatWerePublished) {
  auto products = [](const bench::OpGraph& graph) {
    return std::count_if(graph.costs.begin(), graph.costs.end(), [](const OpCost& cost) { return cost.device_us > 0; });
  };
  for (const bench::OpGraph& graph : bench::all_graphs()) EXPECT_EQ(products(graph), graph.dag.nodes()) << graph.name;
  // GoogLeNet: 57 convolutions with normalisation and ReLU, 13 pools, 9 joins, the mean and the last product.
  EXPECT_EQ(bench::googlenet().dag.nodes(), 57u * 3 + 13 + 9 + 2);
  // Inception-v3: 94 convolutions, 13 pools, 9 joins and 4 inside the last two modules.
  EXPECT_EQ(bench::inception_v3().dag.nodes(), 94u * 3 + 13 + 15 + 2);
}

}  // namespace
}  // namespace nimble::analyzer
