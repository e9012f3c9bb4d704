#include "analyzer/analysis.h"

#include <algorithm>

#include "analyzer/access_exact.h"
#include "analyzer/access_graph.h"
#include "analyzer/access_proven.h"
#include "analyzer/access_rules.h"
#include "analyzer/access_signature.h"
#include "analyzer/describe.h"
#include "analyzer/reduce.h"

namespace nimble::analyzer {
namespace {

std::vector<Dag::Edge> pairs_of(const Dependencies& dependencies) {
  std::vector<Dag::Edge> edges;
  edges.reserve(dependencies.all.size());
  for (const Dependency& dependency : dependencies.all) edges.push_back({dependency.from, dependency.to});
  return edges;
}

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

void plan_all(Analysis& analysis, const DeviceModel& device, std::uint32_t max_lanes) {
  std::vector<Dag> graphs = graphs_of(analysis.segments, analysis.dependencies);
  std::vector<std::vector<OpCost>> costs;
  for (const Segment& segment : analysis.segments.segments) {
    costs.emplace_back();
    for (std::uint32_t op : segment.ops) costs.back().push_back(analysis.costs[op]);
  }
  for (std::string_view name : kPolicyNames) {
    auto policy = make_policy(name);
    PolicyOutcome outcome;
    outcome.policy = name;
    std::vector<double> segment_us;
    for (std::size_t s = 0; s < graphs.size(); ++s) {
      SegmentPlan plan =
          make_plan(device, graphs[s], costs[s], policy->assign(graphs[s], {costs[s], device, max_lanes}));
      outcome.lanes = std::max(outcome.lanes, plan.assignment.lanes);
      outcome.synchronizations += plan.synchronizations;
      outcome.device_us += plan.predicted_us;
      segment_us.push_back(plan.predicted_us);
      if (name == analysis.chosen) analysis.plans.push_back(std::move(plan));
    }
    outcome.step_us = predict_replay(device, analysis.segments, analysis.costs, segment_us);
    analysis.policies.push_back(outcome);
  }
}

void decide(Analysis& analysis, const AnalysisOptions& options) {
  const Trace& trace = analysis.file.trace;
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
    analysis.why_no_schedule = "the program leaves ops unordered that touch the same memory (" +
                               races_text(analysis.dependencies) +
                               "): they may be talking to each other, and no order can be given to them";
  } else if (analysis.order->streams() > 1) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule = "the step runs on " + std::to_string(analysis.order->streams()) +
                               " streams; replay of steps on several streams is not supported yet";
  } else if (!analysis.memory.possible) {
    analysis.status = kExitUnschedulable;
    analysis.why_no_schedule = "the objects of one step take more address space than a memory plan may have";
  }
}

}  // namespace

Analysis read_step(TraceFile file, const AnalysisOptions& options) {
  Analysis analysis;
  analysis.file = std::move(file);
  analysis.chosen = options.policy;
  const Trace& trace = analysis.file.trace;
  analysis.table = std::make_unique<ObjectTable>(trace);
  analysis.step = find_step(trace, *analysis.table);
  if (analysis.step.period == 0) {
    analysis.status = kExitNoStep;
    analysis.why_no_schedule = analysis.step.why_none;
    return analysis;
  }
  auto calls = analysis.step.calls();
  analysis.objects = objects_of_step(trace, *analysis.table, calls);
  analysis.accesses = accesses_of(trace, *analysis.table, analysis.objects, calls, options);
  return analysis;
}

StepAccesses accesses_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                         std::span<const std::uint32_t> calls, const AnalysisOptions& options) {
  std::vector<std::unique_ptr<AccessSource>> sources;
  sources.push_back(std::make_unique<ExactAccess>());
  std::vector<AccessSource*> for_kernels;
  auto for_kernel = [&](std::unique_ptr<AccessSource> source) {
    for_kernels.push_back(source.get());
    sources.push_back(std::move(source));
  };
  for_kernel(std::make_unique<ProvenAccessSource>(trace, true));
  for_kernel(std::make_unique<RulesAccess>(trace, options.rules));
  for_kernel(std::make_unique<ProvenAccessSource>(trace, false));
  for_kernel(std::make_unique<SignatureAccess>(trace));
  sources.push_back(std::make_unique<GraphAccess>(for_kernels));
  return infer_accesses(trace, table, objects, calls, sources);
}

Analysis analyze(TraceFile file, const AnalysisOptions& options) {
  Analysis analysis = read_step(std::move(file), options);
  if (analysis.step.period == 0) return analysis;
  const Trace& trace = analysis.file.trace;
  auto calls = analysis.step.calls();
  analysis.order = std::make_unique<HappensBefore>(trace, calls);
  std::vector<std::uint32_t> event, event2;
  for (std::uint32_t call : calls) {
    event.push_back(trace.calls[call].event);
    event2.push_back(trace.calls[call].event2);
  }
  analysis.dependencies =
      find_dependencies({analysis.accesses, *analysis.order, analysis.objects, std::move(event), std::move(event2)});
  analysis.reduced =
      transitive_reduction(Dag(static_cast<std::uint32_t>(calls.size()), pairs_of(analysis.dependencies)));
  analysis.segments = cut_into_segments(trace, analysis.step, analysis.accesses);
  analysis.memory = plan_memory(analysis.objects, static_cast<std::uint32_t>(calls.size()));

  DeviceModel device;
  analysis.measured = measure(trace, analysis.step);
  analysis.costs = predict_costs(device, trace, *analysis.table, calls, analysis.objects, analysis.accesses,
                                 analysis.measured.op_us);
  analysis.program_us = predict_program(device, analysis.segments, analysis.costs);
  std::vector<double> duration;
  std::vector<std::uint8_t> work;
  for (std::size_t op = 0; op < calls.size(); ++op) {
    duration.push_back(analysis.costs[op].device_us);
    work.push_back(does_work(trace.calls[calls[op]].kind));
  }
  analysis.critical = critical_path(analysis.reduced, duration);
  analysis.concurrency = max_concurrency(analysis.reduced, work);
  plan_all(analysis, device, options.max_lanes);
  decide(analysis, options);
  return analysis;
}

}  // namespace nimble::analyzer
