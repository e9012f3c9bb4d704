#include "analyzer/model/makespan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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

// The same simulation in short steps of time, each of which looks at all nodes anew: kernels alone, one priority.
std::vector<double> ends_in_short_steps(const Dag& dag, const std::vector<OpCost>& costs) {
  constexpr double kStep = 1.0 / 64;
  struct Wave {
    std::uint32_t node;
    int width;
    double left;
  };
  const std::uint32_t n = dag.nodes();
  std::vector<double> ready(n, -1), end(n, -1);
  std::vector<int> waiting(n), running(n, 0);
  std::vector<Wave> waves;
  for (std::uint32_t i = 0; i < n; ++i) waiting[i] = costs[i].multiprocessors * costs[i].waves;
  int free = Device().multiprocessors;
  const auto missing = [&](std::uint32_t i) {
    return std::ranges::any_of(dag.predecessors(i), [&](std::uint32_t from) { return end[from] < 0; });
  };
  for (double now = 0; std::ranges::any_of(end, [](double each) { return each < 0; }); now += kStep) {
    std::vector<std::uint32_t> queue;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (ready[i] < 0 && !missing(i)) ready[i] = now;
      if (ready[i] >= 0 && waiting[i] > 0) queue.push_back(i);
    }
    std::ranges::stable_sort(queue, {}, [&](std::uint32_t i) { return ready[i]; });
    for (const std::uint32_t i : queue)
      while (waiting[i] > 0 && free > 0) {
        const int width = std::min({free, waiting[i], costs[i].multiprocessors});
        waves.push_back({i, width, costs[i].device_us / costs[i].waves});
        free -= width, waiting[i] -= width, running[i] += width;
      }
    // The largest share of the bandwidth for which there is enough, by halving.
    const auto wants = [&](const Wave& wave) {
      return costs[wave.node].bandwidth * wave.width / costs[wave.node].multiprocessors;
    };
    double share = 1, too_much = 2;
    const auto drawn = [&](double most) {
      double sum = 0;
      for (const Wave& wave : waves) sum += std::min(most, wants(wave));
      return sum;
    };
    if (drawn(1) > 1) {
      share = 0, too_much = 1;
      for (int i = 0; i < 50; ++i) (drawn((share + too_much) / 2) > 1 ? too_much : share) = (share + too_much) / 2;
    }
    for (Wave& wave : waves) wave.left -= kStep / std::max(1.0, wants(wave) / share);
    std::erase_if(waves, [&](const Wave& wave) {
      if (wave.left > 1e-9) return false;
      free += wave.width;
      running[wave.node] -= wave.width;
      if (running[wave.node] == 0 && waiting[wave.node] == 0) end[wave.node] = now + kStep;
      return true;
    });
  }
  return end;
}

TEST(Makespan, IsThatOfASimulationInShortSteps) {
  test::Random random(22);
  for (int round = 0; round < 50; ++round) {
    const Dag dag = test::random_dag(random, 1 + test::below(random, 12), 0.15);
    std::vector<OpCost> costs;
    for (std::uint32_t i = 0; i < dag.nodes(); ++i) {
      // Many of them alike, so that one often takes the place of another.
      OpCost cost = kernel(static_cast<double>(8 + 8 * (random() % 3)), 1 + static_cast<int>(random() % 6));
      cost.waves = 1 + static_cast<int>(random() % 2);
      cost.bandwidth = 0.2 * static_cast<double>(random() % 6);
      costs.push_back(cost);
    }
    std::vector<std::uint32_t> order(dag.nodes());
    std::iota(order.begin(), order.end(), 0);
    Timeline times;
    predict_makespan(Device(), dag, costs, order, {}, times);
    const std::vector<double> expected = ends_in_short_steps(dag, costs);
    for (std::uint32_t i = 0; i < dag.nodes(); ++i)
      ASSERT_NEAR(times.end_us[i], expected[i], 0.4) << "node " << i << " in round " << round;
  }
}

}  // namespace
}  // namespace nimble::analyzer
