#include "analyzer/stages/plan_step.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/plan/host_clocks.h"
#include "analyzer/plan/segment_splitting.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

// The minimum equivalent graph of each segment, over its own nodes.
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

// Makes plans for the segments of one step.
class Planner {
 public:
  Planner(const Analysis& analysis, const DeviceModel& device)
      : analysis_(analysis), device_(device), graphs_(graphs_of(analysis.segments, analysis.dependencies)) {
    for (const Segment& segment : analysis.segments.segments) {
      costs_.emplace_back();
      communicate_.emplace_back();
      for (std::uint32_t op : segment.ops) {
        costs_.back().push_back(analysis.costs[op]);
        communicate_.back().push_back(analysis.accesses.ops[op].communicates != Communicates::no);
      }
    }
  }

  PolicyOutcome plan(std::string_view name, std::uint32_t max_lanes, std::vector<SegmentPlan>& plans) const {
    auto policy = make_policy(name);
    PolicyOutcome outcome;
    outcome.policy = name;
    std::vector<double> segment_us;
    plans.clear();
    for (std::size_t s = 0; s < graphs_.size(); ++s) {
      plans.push_back(make_plan(device_, graphs_[s], costs_[s],
                                policy->assign(graphs_[s], {costs_[s], device_, max_lanes, communicate_[s]})));
      const SegmentPlan& plan = plans.back();
      outcome.lanes = std::max(outcome.lanes, plan.assignment.lanes);
      outcome.synchronizations += plan.synchronizations;
      outcome.device_us += plan.predicted_us;
      segment_us.push_back(plan.predicted_us);
    }
    outcome.step_us = predict_replay(device_, analysis_.segments, analysis_.costs, analysis_.host, segment_us);
    return outcome;
  }

 private:
  const Analysis& analysis_;
  const DeviceModel& device_;
  std::vector<Dag> graphs_;
  std::vector<std::vector<OpCost>> costs_;
  std::vector<std::vector<std::uint8_t>> communicate_;  // per segment and node
};

// Where the chosen policy is predicted to gain by it, segments are cut so that the GPU begins early.
void cut_early(Analysis& analysis, const DeviceModel& device, std::uint32_t max_lanes) {
  if (analysis.host.repeats == 0) return;
  Segmentation early = start_early(device, analysis.segments, graphs_of(analysis.segments, analysis.dependencies),
                                   analysis.costs, analysis.host);
  const std::size_t cuts = early.segments.size() - analysis.segments.segments.size();
  if (cuts == 0) return;
  std::vector<SegmentPlan> plans;
  const double uncut_us = Planner(analysis, device).plan(analysis.chosen, max_lanes, plans).step_us;
  std::swap(analysis.segments, early);
  if (Planner(analysis, device).plan(analysis.chosen, max_lanes, plans).step_us >= uncut_us) {
    std::swap(analysis.segments, early);
    return;
  }
  analysis.early_cuts = static_cast<std::uint32_t>(cuts);
  analysis.uncut_us = uncut_us;
}

void plan_all(Analysis& analysis, const Planner& planner, std::uint32_t max_lanes) {
  std::vector<SegmentPlan> plans;
  for (std::string_view name : kPolicyNames) {
    analysis.policies.push_back(planner.plan(name, max_lanes, plans));
    if (name == analysis.chosen) analysis.plans = std::move(plans);
  }
}

// Replaces plans whose memory does not fit by more sequential ones: `cost` with fewer and fewer lanes, at last
// `single`. If not even that fits nothing does, and it is what stays: the program's own order needs the least.
void keep_to_limit(Analysis& analysis, const Planner& planner, const StepUses& uses, const StreamPaths& streams,
                   const AnalysisOptions& options, const PlacesOfObjects& places) {
  const std::uint64_t limit = *options.memory_limit;
  if (!analysis.memory.possible || analysis.memory.arena_bytes <= limit) return;
  analysis.memory_without_limit = analysis.memory.arena_bytes;
  std::vector<SegmentPlan> plans;
  PolicyOutcome outcome = planner.plan("single", 1, plans);
  MemoryPlan memory = plan_memory(analysis.objects, uses, analysis.segments, plans, streams, places);
  std::uint32_t lanes = 0;
  for (const SegmentPlan& plan : analysis.plans) lanes = std::max(lanes, plan.assignment.lanes);
  lanes = std::min(lanes, options.max_lanes);
  if (analysis.chosen == "cost") lanes /= 2;  // with all of them it has been tried
  bool found = memory.arena_bytes > limit;    // then there is nothing to look for
  for (; !found && lanes > 1; lanes /= 2) {
    std::vector<SegmentPlan> wider;
    PolicyOutcome of_wider = planner.plan("cost", lanes, wider);
    MemoryPlan needs = plan_memory(analysis.objects, uses, analysis.segments, wider, streams, places);
    found = needs.arena_bytes <= limit;
    if (!found) continue;
    plans = std::move(wider);
    outcome = of_wider;
    memory = std::move(needs);
  }
  analysis.plans = std::move(plans);
  analysis.memory = std::move(memory);
  analysis.chosen = outcome.policy;
  for (PolicyOutcome& other : analysis.policies)
    if (other.policy == outcome.policy) other = outcome;
}

// How much the chosen plans leave unordered, and how well that is known.
Parallelism parallelism_of(const Analysis& analysis) {
  ParallelismCounter counter;
  for (std::size_t s = 0; s < analysis.plans.size(); ++s) {
    std::vector<Evidence> evidence;
    for (std::uint32_t op : analysis.segments.segments[s].ops) evidence.push_back(analysis.accesses.ops[op].evidence);
    counter.add(analysis.plans[s].enforced, evidence);
  }
  return counter.result();
}

void decide(Analysis& analysis, const AnalysisOptions& options) {
  const Trace& trace = analysis.file->trace;
  if (trace.coverage.recorded < trace.coverage.seen && !options.accept_partial) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule = "the recorder saw " + std::to_string(trace.coverage.recorded) + " of " +
                               std::to_string(trace.coverage.seen) +
                               " launches, copies and sets: what it missed may touch anything (--accept-partial to go "
                               "on all the same)";
  } else if (trace.dropped > 0) {
    analysis.status = kExitFailure;
    analysis.why_no_schedule = "the recorder dropped " + std::to_string(trace.dropped) +
                               " events, so the trace does not hold all that the program did; record again";
  } else if (analysis.dependencies.race_count > 0) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule =
        "the program leaves ops unordered that touch the same memory, or may be talking to others (" +
        races_text(analysis.dependencies) + "): they may be talking to each other, and no order can be given to them";
  } else if (!analysis.streams.why_not.empty()) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule = analysis.streams.why_not;
  } else if (!analysis.memory.possible) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule = "the objects of one step take more address space than a memory plan may have";
  } else if (options.memory_limit && analysis.memory.arena_bytes > *options.memory_limit) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule = "the step's own objects take " + bytes_text(analysis.memory.arena_bytes) +
                               " even one op after another, more than the " + bytes_text(*options.memory_limit) +
                               " of --memory-limit";
  }
}

}  // namespace

void plan_step(Analysis& analysis, const AnalysisOptions& options, const PlanBounds& bounds) {
  const Trace& trace = analysis.file->trace;
  const auto calls = analysis.step.calls();
  analysis.status = kExitOk;
  analysis.why_no_schedule.clear();
  analysis.chosen = options.policy;
  analysis.policies.clear();
  // Where others have been cut, at their pauses, too, this one keeps to that.
  if (bounds.cuts.empty()) analysis.pauses = options.start_early ? pauses(analysis.host) : std::vector<std::uint32_t>{};
  analysis.segments =
      cut_into_segments(trace, analysis.step, analysis.accesses, bounds.cuts.empty() ? analysis.pauses : bounds.cuts);
  analysis.streams = streams_of_step(
      {trace, *analysis.table, analysis.step, analysis.objects, analysis.accesses, analysis.segments, *analysis.order});
  const DeviceModel device;
  analysis.program_us = predict_program(device, analysis.segments, analysis.costs, analysis.host);
  if (options.start_early && bounds.cuts.empty()) cut_early(analysis, device, options.max_lanes);
  Planner planner(analysis, device);
  plan_all(analysis, planner, options.max_lanes);
  StepUses uses = uses_of_step(*analysis.table, calls, analysis.objects, analysis.accesses);
  const StreamPaths streams(analysis.streams.of_op, analysis.segments.record,
                            static_cast<std::uint32_t>(analysis.streams.streams.size()));
  analysis.memory = plan_memory(analysis.objects, uses, analysis.segments, analysis.plans, streams, bounds.places);
  if (options.memory_limit) keep_to_limit(analysis, planner, uses, streams, options, bounds.places);
  analysis.parallelism = parallelism_of(analysis);
  decide(analysis, options);
}

}  // namespace nimble::analyzer
