#include "analyzer/page/replay_times.h"

#include <algorithm>

#include "analyzer/model/makespan.h"
#include "analyzer/plan/host_clocks.h"

namespace nimble::analyzer {
namespace {

// Of each node, from the start of its graph.
Timeline times_in_graph(const StepAnalysis& analysis, const DeviceModel& device, std::size_t segment) {
  const SegmentPlan& plan = analysis.plan.lanes[segment];
  std::vector<OpCost> costs;
  for (const std::uint32_t op : analysis.cut.segments.segments[segment].ops) costs.push_back(analysis.times.costs[op]);
  Timeline times;
  predict_makespan(device, plan.enforced, costs, plan.order, plan.assignment.priority, times);
  return times;
}

}  // namespace

ReplayTimes replay_times(const StepAnalysis& analysis, const DeviceModel& device) {
  ReplayTimes result;
  const Segmentation& cut = analysis.cut.segments;
  if (analysis.plan.status != kExitOk || analysis.plan.lanes.size() != cut.segments.size()) return result;
  const auto ops = static_cast<std::uint32_t>(analysis.times.costs.size());
  result.begin_us.assign(ops, -1);
  result.end_us.assign(ops, -1);
  result.lane.assign(ops, 0);
  HostClocks clocks(device, cut, analysis.times.costs, analysis.times.host);
  for (std::uint32_t op = 0; op < ops; ++op) {
    clocks.issue(op);
    const double us = analysis.times.costs[op].device_us;
    if (cut.submit[op] == Submit::direct && us > 0) {
      result.begin_us[op] = clocks.device() - us;
      result.end_us[op] = clocks.device();
    }
    const std::uint32_t segment = cut.segment[op];
    if (segment == kNone || op != cut.segments[segment].ops.back()) continue;
    const std::vector<std::uint32_t>& members = cut.segments[segment].ops;
    const double called = clocks.host();
    clocks.launch(members.size());
    result.launches.push_back({called, clocks.host(), static_cast<std::uint32_t>(members.size())});
    const double begin = std::max(clocks.host(), clocks.device() + device.stream_edge_us);
    const Timeline times = times_in_graph(analysis, device, segment);
    for (std::size_t node = 0; node < members.size(); ++node) {
      result.begin_us[members[node]] = begin + times.begin_us[node];
      result.end_us[members[node]] = begin + times.end_us[node];
      result.lane[members[node]] = analysis.plan.lanes[segment].assignment.lane[node];
    }
    clocks.device_until(begin + analysis.plan.lanes[segment].predicted_us);
  }
  clocks.end();
  result.step_us = std::max(clocks.host(), clocks.device());
  return result;
}

}  // namespace nimble::analyzer
