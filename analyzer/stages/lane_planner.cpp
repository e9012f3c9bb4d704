#include "analyzer/stages/lane_planner.h"

#include <algorithm>
#include <utility>

#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/plan/host_clocks.h"
#include "analyzer/policies/policy.h"

namespace nimble::analyzer {

std::vector<Dag> graphs_of(const Segmentation& segments, const Dependencies& dependencies) {
  std::vector<std::uint32_t> node(segments.segment.size(), kNone);
  for (const Segment& segment : segments.segments)
    for (std::uint32_t i = 0; i < segment.ops.size(); ++i) node[segment.ops[i]] = i;
  std::vector<std::vector<Dag::Edge>> edges(segments.segments.size());
  for (const Dependency& dependency : dependencies.all) {
    std::uint32_t segment = segments.segment[dependency.from];
    if (segment == kNone || segment != segments.segment[dependency.to]) continue;
    edges[segment].push_back({node[dependency.from], node[dependency.to]});
  }
  std::vector<Dag> graphs;
  for (std::size_t s = 0; s < edges.size(); ++s)
    graphs.push_back(
        transitive_reduction(Dag(static_cast<std::uint32_t>(segments.segments[s].ops.size()), std::move(edges[s]))));
  return graphs;
}

LanePlanner::LanePlanner(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                         const Segmentation& segments)
    : times_(times), segments_(segments), graphs_(graphs_of(segments, order.dependencies)) {
  for (const Segment& segment : segments.segments) {
    costs_.emplace_back();
    communicate_.emplace_back();
    for (std::uint32_t op : segment.ops) {
      costs_.back().push_back(times.costs[op]);
      communicate_.back().push_back(reading.evidence.accesses.ops[op].communicates != Communicates::no);
    }
  }
}

LanePlans LanePlanner::plan(std::string_view name, std::uint32_t max_lanes) const {
  auto policy = make_policy(name);
  LanePlans result;
  PolicyOutcome& outcome = result.outcome;
  outcome.policy = name;
  std::vector<double> segment_us;
  for (std::size_t s = 0; s < graphs_.size(); ++s) {
    result.plans.push_back(make_plan(device_, graphs_[s], costs_[s],
                                     policy->assign(graphs_[s], {costs_[s], device_, max_lanes, communicate_[s]})));
    const SegmentPlan& plan = result.plans.back();
    outcome.lanes = std::max(outcome.lanes, plan.assignment.lanes);
    outcome.synchronizations += plan.synchronizations;
    outcome.device_us += plan.predicted_us;
    segment_us.push_back(plan.predicted_us);
  }
  outcome.step_us = predict_replay(device_, segments_, times_.costs, times_.host, segment_us);
  return result;
}

}  // namespace nimble::analyzer
