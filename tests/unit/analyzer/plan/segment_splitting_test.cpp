#include "analyzer/plan/segment_splitting.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;
using test::Random;

// `ops` kernels of 10 us in one segment, each as wide as the device; the program takes `own_us` before each of them,
// and waits for the device at the end.
struct StepOfKernels {
  StepOfKernels(std::uint32_t ops, double own_us) {
    segments.submit.assign(ops, Submit::graph);
    segments.why_direct.assign(ops, nullptr);
    segments.segment.assign(ops, 0);
    segments.observed.assign(ops, 0);
    segments.observed_at_end = true;
    segments.segments.resize(1);
    segments.segments[0].ops.resize(ops);
    std::iota(segments.segments[0].ops.begin(), segments.segments[0].ops.end(), 0u);
    OpCost cost;
    cost.device_us = 10;
    cost.engine = Engine::multiprocessors;
    cost.multiprocessors = device.multiprocessors;
    costs.assign(ops, cost);
    host.before_us.assign(ops, own_us);
    host.repeats = 1;
    graphs.emplace_back(ops, std::vector<Dag::Edge>{});
  }
  Segmentation start() const { return split_segments(device, segments, graphs, costs, host); }

  DeviceModel device;
  Segmentation segments;
  std::vector<OpCost> costs;
  HostTime host;
  std::vector<Dag> graphs;
};

TEST(EarlyStart, CutsIfTheHostIsSlowAndWaits) {
  const Segmentation early = StepOfKernels(100, 20).start();
  EXPECT_GT(early.segments.size(), 3u);
  EXPECT_LT(early.segments.front().ops.size(), 20u);
  EXPECT_LT(early.segments.back().ops.size(), 20u) << "after the last op the program waits for this";
}

TEST(EarlyStart, CutsNothingForNothing) {
  StepOfKernels fast(100, 0.01);
  EXPECT_EQ(fast.start().segments.size(), 1u) << "the host is through at once";
  StepOfKernels unobserved(100, 20);
  unobserved.segments.observed_at_end = false;
  EXPECT_EQ(unobserved.start().segments.size(), 1u) << "the host does not wait, so it runs ahead";
  StepOfKernels unknown(100, 20);
  unknown.host.repeats = 0;
  EXPECT_EQ(unknown.start().segments.size(), 1u);
  StepOfKernels few(3, 500);
  EXPECT_EQ(few.start().segments.size(), 1u) << "one op is no graph";
}

TEST(EarlyStart, AWaitInTheMiddleIsReasonForWhatComesBefore) {
  StepOfKernels step(100, 20);
  step.segments.observed_at_end = false;
  step.segments.observed[50] = 1;
  step.segments.segments.resize(2);
  step.segments.segments[0].ops.resize(50);
  for (std::uint32_t op = 50; op < 100; ++op) {
    step.segments.segment[op] = 1;
    step.segments.segments[1].ops.push_back(op);
  }
  step.graphs.assign(2, Dag(50, {}));
  const Segmentation early = step.start();
  EXPECT_GT(early.segments.size(), 3u);
  EXPECT_EQ(early.segments.back().ops.size(), 50u);
}

// What a step takes whose one segment is cut at these nodes, by the bounds that split_segments() goes by: written down
// once more, node by node.
double takes(const StepOfKernels& step, const std::vector<std::uint32_t>& begins) {
  double host = 0, end = 0;
  const auto n = static_cast<std::uint32_t>(step.costs.size());
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::uint32_t to = i + 1 < begins.size() ? begins[i + 1] : n;
    std::vector<double> done(n, 0);
    double path = 0, work = 0;
    for (std::uint32_t node = begins[i]; node < to; ++node) {
      host += step.host.before_us[node] + step.device.replayed_call_host_us;
      for (std::uint32_t before : step.graphs[0].predecessors(node))
        if (before >= begins[i]) done[node] = std::max(done[node], done[before] + step.device.graph_edge_us);
      path = std::max(path, done[node] += step.costs[node].device_us);
      work += step.costs[node].device_us * step.costs[node].multiprocessors / step.device.multiprocessors;
    }
    const double launched = host + graph_launch_us(step.device, to - begins[i]);
    end = std::max(launched, end + step.device.stream_edge_us) +
          std::max({path, work, step.device.graph_dispatch_us * (to - begins[i])});
  }
  return end;
}

TEST(EarlyStart, NoOtherCutsAreBetter) {
  Random random(50);
  int cut = 0;
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t n = 4 + test::below(random, 9);
    StepOfKernels step(n, 0);
    step.graphs[0] = test::random_dag(random, n, 0.3);
    for (std::uint32_t op = 0; op < n; ++op) {
      step.costs[op].device_us = 1 + test::below(random, 60);
      step.costs[op].multiprocessors = 1 + static_cast<int>(test::below(random, 132));
      step.host.before_us[op] = 10;  // so that every node is one of the places
    }
    const Segmentation early = step.start();
    std::vector<std::uint32_t> begins, all(n);
    std::iota(all.begin(), all.end(), 0u);
    std::vector<std::uint32_t> pieces;
    for (std::size_t s = 0; s < early.segments.size(); ++s) {
      const auto& ops = early.segments[s].ops;
      ASSERT_GE(ops.size(), 2u);
      begins.push_back(ops.front());
      pieces.insert(pieces.end(), ops.begin(), ops.end());
      for (std::uint32_t op : ops) ASSERT_EQ(early.segment[op], s);
    }
    ASSERT_EQ(pieces, all);
    const double whole = takes(step, {0}), mine = takes(step, begins);
    double best = whole;
    for (std::uint32_t mask = 0; mask < 1u << (n - 1); ++mask) {
      std::vector<std::uint32_t> other{0};
      for (std::uint32_t node = 1; node < n; ++node)
        if (mask >> (node - 1) & 1) other.push_back(node);
      bool graphs = n - other.back() >= 2;
      for (std::size_t i = 0; i + 1 < other.size(); ++i) graphs = graphs && other[i + 1] - other[i] >= 2;
      if (graphs) best = std::min(best, takes(step, other));
    }
    if (begins.size() > 1) {
      ++cut;
      EXPECT_NEAR(mine, best, 1e-6) << "round " << round;
    } else {
      EXPECT_LT(whole - best, std::max(5.0, 0.02 * whole) + 1e-6) << "round " << round;
    }
  }
  EXPECT_GT(cut, 100);
}

// Through the whole pipeline: the schedule has more graphs, and the report says why.
TEST(EarlyStart, TheChosenPolicyIsPredictedToGain) {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
  text.stream();
  for (std::uint64_t i = 0; i < 61; ++i) text.alloc((i + 1) << 16, 0x100);
  for (int repeat = 0; repeat < 6; ++repeat) {
    for (std::uint64_t op = 1; op < 61; ++op) {
      text.pass(4);
      text.launch(0, hex((op + 1) << 16) + hex(op << 16));  // each after the one before
    }
    text.synchronize(0);
  }
  const Analysis analysis = text.analyze();
  ASSERT_EQ(analysis.step.period, 60u);
  EXPECT_GT(analysis.cut.early_cuts, 0u);
  EXPECT_EQ(analysis.cut.segments.segments.size(), analysis.cut.early_cuts + 1);
  EXPECT_GT(analysis.cut.uncut_us, analysis.plan.policies.front().step_us);
  AnalysisOptions options = test::believing();
  options.start_early = false;
  const Analysis whole = text.analyze(options);
  EXPECT_EQ(whole.cut.segments.segments.size(), 1u);
  EXPECT_DOUBLE_EQ(whole.plan.policies.front().step_us, analysis.cut.uncut_us);
}

}  // namespace
}  // namespace nimble::analyzer
