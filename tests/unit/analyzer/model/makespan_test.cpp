#include "analyzer/model/makespan.h"

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
    graph_edge_us = graph_dispatch_us = 0;
  }
};

double makespan(const Dag& dag, const std::vector<OpCost>& costs) {
  std::vector<double> durations;
  for (const OpCost& cost : costs) durations.push_back(cost.device_us);
  return predict_makespan(Device(), dag, costs, critical_first(dag, durations));
}

TEST(Makespan, KernelsThatFitRunSideBySide) {
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {kernel(5, 4), kernel(3, 6)}), 5);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {kernel(5, 5), kernel(3, 6)}), 6) << "a sixth begins when five are done";
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {{0, 1}}), {kernel(5, 4), kernel(3, 6)}), 8);
  EXPECT_DOUBLE_EQ(makespan(Dag(0, {}), {}), 0);
}

TEST(Makespan, AnEdgeCostsTimeOfItsOwn) {
  Device device;
  device.graph_edge_us = 0.5;
  std::vector<OpCost> costs{kernel(1, 1), kernel(1, 1)};
  std::vector<std::uint32_t> order{0, 1};
  EXPECT_DOUBLE_EQ(predict_makespan(device, Dag(2, {{0, 1}}), costs, order), 2.5);
}

TEST(Makespan, NodesThatAreReadyAtOnceAreDispatchedOneAfterAnother) {
  Device device;
  device.graph_dispatch_us = 0.25;
  std::vector<OpCost> costs(5, kernel(2, 1));
  std::vector<std::uint32_t> order{0, 1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(predict_makespan(device, Dag(5, {}), costs, order), 3);
  EXPECT_DOUBLE_EQ(predict_makespan(device, Dag(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}), costs, order), 10)
      << "in a chain nothing waits for it";
}

TEST(Makespan, CopiesOfOneEngineQueueUp) {
  OpCost up, down;
  up.device_us = down.device_us = 4;
  up.engine = Engine::host_to_device;
  down.engine = Engine::device_to_host;
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {up, up}), 8);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {up, down}), 4);
}

// A kernel of bandwidth alone, and what is left over for others.
TEST(Makespan, BandwidthIsShared) {
  auto bound = [](double us, double share) {
    OpCost cost = kernel(us, 2);
    cost.bandwidth = share;
    return cost;
  };
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {bound(5, 1), bound(5, 1)}), 10);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {bound(5, 0.5), bound(5, 0.5)}), 5);
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {bound(5, 1), bound(5, 0)}), 5);
  // The small one takes what it wants, 0.2; the other has 0.8 while it runs: 4 of 5 are done, and the rest is alone.
  EXPECT_DOUBLE_EQ(makespan(Dag(2, {}), {bound(5, 1), bound(5, 0.2)}), 6);
  EXPECT_DOUBLE_EQ(makespan(Dag(3, {}), {bound(3, 1), bound(3, 1), bound(3, 1)}), 9);
}

// Three waves on the whole device; a chain of short kernels beside it gets in between the waves if it may.
TEST(Makespan, PriorityComesInBetweenWaves) {
  OpCost large = kernel(30, 10);
  large.waves = 3;
  std::vector<OpCost> costs{large, kernel(5, 1), kernel(5, 1), kernel(5, 1)};
  Dag dag(4, {{1, 2}, {2, 3}});
  std::vector<std::uint32_t> order{0, 1, 2, 3};
  // The large one was there first: nothing of the chain begins before its last wave is done.
  EXPECT_DOUBLE_EQ(predict_makespan(Device(), dag, costs, order), 45);
  // The chain has one of ten multiprocessors until 15; what the large one misses there, others do in a wave of its own.
  std::vector<std::uint8_t> priority{0, 1, 1, 1};
  Timeline times;
  EXPECT_DOUBLE_EQ(predict_makespan(Device(), dag, costs, order, priority, times), 40);
  EXPECT_EQ(times.begin_us, (std::vector<double>{0, 0, 5, 10}));
  EXPECT_EQ(times.end_us, (std::vector<double>{40, 5, 10, 15}));
}

TEST(Makespan, WhoWasReadyFirstGoesFirst) {
  // 2 becomes ready at 1, 3 at 2; both need the whole device, which is free at 5. The order says otherwise.
  std::vector<OpCost> costs{kernel(1, 1), kernel(2, 1), kernel(1, 10), kernel(2, 10), kernel(5, 8)};
  Dag dag(5, {{0, 2}, {1, 3}});
  Timeline times;
  std::vector<std::uint32_t> order{1, 3, 0, 2, 4};
  predict_makespan(Device(), dag, costs, order, {}, times);
  EXPECT_LT(times.begin_us[2], times.begin_us[3]);
}

// Between the two bounds that hold for any schedule: the critical path, and everything one after the other.
TEST(Makespan, StaysBetweenCriticalPathAndSum) {
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
