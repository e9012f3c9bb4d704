#include "analyzer/predict.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

OpCost kernel(double us, int multiprocessors) {
  OpCost cost;
  cost.device_us = us;
  cost.host_us = 2;
  cost.engine = Engine::multiprocessors;
  cost.multiprocessors = multiprocessors;
  return cost;
}

struct Device : DeviceModel {
  Device() {
    multiprocessors = 10;
    graph_edge_us = 0;
  }
};

double makespan(const Dag& dag, const std::vector<OpCost>& costs) {
  std::vector<double> durations;
  for (const OpCost& cost : costs) durations.push_back(cost.device_us);
  return predict_makespan(Device(), dag, costs, critical_first(dag, durations));
}

TEST(Predict, KernelsThatFitRunSideBySide) {
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {kernel(5, 4), kernel(3, 6)}), 5);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {kernel(5, 5), kernel(3, 6)}), 8);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {{0, 1}}), {kernel(5, 4), kernel(3, 6)}), 8);
  EXPECT_DOUBLE_EQ(makespan(Dag(0, {}), {}), 0);
}

TEST(Predict, AnEdgeCostsTimeOfItsOwn) {
  Device device;
  device.graph_edge_us = 0.5;
  std::vector<OpCost> costs{kernel(1, 1), kernel(1, 1)};
  std::vector<std::uint32_t> order{0, 1};
  EXPECT_DOUBLE_EQ(predict_makespan(device, Dag(2, {{0, 1}}), costs, order), 2.5);
}

TEST(Predict, CopiesOfOneEngineQueueUp) {
  OpCost up, down;
  up.device_us = down.device_us = 4;
  up.engine = Engine::host_to_device;
  down.engine = Engine::device_to_host;
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {up, up}), 8);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {up, down}), 4);
}

TEST(Predict, TheCriticalPathGoesFirstAndTheOrderIsTopological) {
  // 0 is short and ends; 1 starts a long chain.
  Dag dag(4, {{1, 2}, {2, 3}});
  std::vector<double> durations{1, 1, 1, 1};
  EXPECT_EQ(critical_first(dag, durations), (std::vector<std::uint32_t>{1, 2, 0, 3}));
  test::Random random(20);
  for (int round = 0; round < 300; ++round) {
    Dag graph = test::random_dag(random, 1 + test::below(random, 30), 0.2);
    std::vector<double> times;
    for (std::uint32_t i = 0; i < graph.nodes(); ++i) times.push_back(static_cast<double>(random() % 9));
    auto order = critical_first(graph, times);
    std::vector<std::uint32_t> place(graph.nodes(), kNone);
    for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    ASSERT_EQ(order.size(), graph.nodes());
    for (const auto& [from, to] : graph.edges()) ASSERT_LT(place[from], place[to]);
  }
}

// Between the two bounds that hold for any schedule: the critical path, and everything one after the other.
TEST(Predict, StaysBetweenCriticalPathAndSum) {
  test::Random random(21);
  for (int round = 0; round < 300; ++round) {
    Dag dag = test::random_dag(random, 1 + test::below(random, 30), 0.1);
    std::vector<OpCost> costs;
    double sum = 0;
    for (std::uint32_t i = 0; i < dag.nodes(); ++i) {
      costs.push_back(kernel(static_cast<double>(1 + random() % 9), 1 + static_cast<int>(random() % 10)));
      sum += costs.back().device_us;
    }
    std::vector<double> until(dag.nodes(), 0);
    double path = 0;
    for (std::uint32_t node = 0; node < dag.nodes(); ++node) {
      for (std::uint32_t from : dag.predecessors(node)) until[node] = std::max(until[node], until[from]);
      path = std::max(path, until[node] += costs[node].device_us);
    }
    double found = makespan(dag, costs);
    ASSERT_GE(found, path);
    ASSERT_LE(found, sum);
  }
}

}  // namespace
}  // namespace nimble::analyzer
