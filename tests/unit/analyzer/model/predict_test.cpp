#include "analyzer/model/predict.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

TEST(Predict, TheShareOfTheMemorysBandwidth) {
  DeviceModel device;
  device.memory_gb_s = 1000;  // a thousand bytes in a nanosecond
  device.multiprocessor_gb_s = 100;
  OpCost cost;
  cost.engine = Engine::multiprocessors;
  cost.multiprocessors = 50;
  cost.device_us = 10;
  EXPECT_DOUBLE_EQ(bandwidth_share(device, cost, 5'000'000, true), 0.5);
  EXPECT_DOUBLE_EQ(bandwidth_share(device, cost, 5'000'000, false), 0.5);
  // More than could pass in the time: what was touched was less, and how much less is not known; unless it was exact.
  EXPECT_DOUBLE_EQ(bandwidth_share(device, cost, 50'000'000, false), 0);
  EXPECT_DOUBLE_EQ(bandwidth_share(device, cost, 50'000'000, true), 1);
  cost.multiprocessors = 2;
  EXPECT_DOUBLE_EQ(bandwidth_share(device, cost, 5'000'000, true), 0.2);
  cost.device_us = 0;
  EXPECT_DOUBLE_EQ(bandwidth_share(device, cost, 5'000'000, true), 0);
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

}  // namespace
}  // namespace nimble::analyzer
