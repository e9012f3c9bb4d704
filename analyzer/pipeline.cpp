#include "analyzer/pipeline.h"

#include <algorithm>

#include "analyzer/access/non_pointer_words.h"
#include "analyzer/access/sources/exact.h"
#include "analyzer/access/sources/graph.h"
#include "analyzer/access/sources/observed.h"
#include "analyzer/access/sources/proven.h"
#include "analyzer/access/sources/rules.h"
#include "analyzer/access/sources/signature.h"
#include "analyzer/access/workspace_hazards.h"
#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/order/communication.h"
#include "analyzer/order/onlookers.h"
#include "analyzer/output/variants_together.h"
#include "analyzer/plan/segment_splitting.h"
#include "analyzer/pointers/pointer_flow.h"
#include "analyzer/report/describe.h"
#include "analyzer/step/step_variants.h"
#include "analyzer/step/thread_order.h"

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

// All sources of evidence, in order of strength. `seen`, as far as it is believed, and `observed` may be null.
std::vector<std::unique_ptr<AccessSource>> sources_of(const Trace& trace, const AnalysisOptions& options,
                                                      HeldPointers& held, const Observations* seen,
                                                      std::unique_ptr<AccessSource> observed) {
  std::vector<std::unique_ptr<AccessSource>> sources;
  sources.push_back(std::make_unique<ExactAccess>());
  std::vector<AccessSource*> for_kernels;
  auto for_kernel = [&](std::unique_ptr<AccessSource> source) {
    source = within_trust(std::move(source), options.trust);
    for_kernels.push_back(source.get());
    sources.push_back(std::move(source));
  };
  for_kernel(std::make_unique<ProvenAccessSource>(trace, true));
  for_kernel(std::make_unique<RulesAccess>(trace, options.rules, held));
  for_kernel(std::make_unique<ProvenAccessSource>(trace, false));
  for_kernel(std::make_unique<SignatureAccess>(trace, held, seen));
  if (observed) for_kernel(std::move(observed));
  sources.push_back(std::make_unique<GraphAccess>(for_kernels));
  return sources;
}

// What the ops of the step touch. Returns what became of them, where accesses rest on pointers in memory.
std::optional<HeldPointers::Outcome> infer(Analysis& analysis, const AnalysisOptions& options,
                                           HeldPointers::Step step) {
  const Trace& trace = analysis.file->trace;
  auto calls = analysis.step.calls();
  step.calls = calls;
  const Observations seen(trace, *analysis.table);
  ConflictFinder conflicts(trace, seen);
  const bool believes_sight = options.trust == Evidence::observed;
  HeldPointers held(trace, *analysis.table, std::move(step), options.rules, believes_sight ? &seen : nullptr);
  const auto sources = sources_of(
      trace, options, held, believes_sight ? &seen : nullptr,
      std::make_unique<ObservedAccess>(trace, *analysis.table, analysis.step, seen, believes_sight ? &held : nullptr));
  analysis.accesses = infer_accesses(trace, *analysis.table, analysis.objects, calls, sources, &held, &conflicts);
  find_scratch(trace, *analysis.table, seen, analysis.objects, calls, analysis.accesses);
  analysis.conflicts = conflicts.take();
  if (options.step)
    analysis.led_nowhere = words_that_led_nowhere(trace, *analysis.table, seen, analysis.accesses, calls);
  return held.asked() ? std::optional(held.outcome()) : std::nullopt;
}

void infer(Analysis& analysis, const AnalysisOptions& options) {
  HeldPointers::Step step;
  for (std::uint32_t i = 0; i < analysis.step.begins.size(); ++i) {
    if (analysis.step.shares_pattern[i] == 0) continue;
    for (const std::uint32_t call : analysis.step.calls_of(i)) {
      if (step.repeats.size() <= call) step.repeats.resize(call + std::size_t{1}, 0);
      step.repeats[call] = 1;
    }
  }
  auto outcome = infer(analysis, options, step);
  if (!outcome) return;
  // Once more, now that it is known which ops replay looks at, until the step before is taken to be what the step is.
  const Segmentation segments = cut_into_segments(analysis.file->trace, analysis.step, analysis.accesses);
  for (const Submit submit : segments.submit) step.uncompared.push_back(submit == Submit::direct);
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    step.before = *outcome;
    outcome = infer(analysis, options, step);
    if (!outcome || *outcome == step.before) return;
  }
  // Nothing of the step before is known.
  std::fill(step.before.known.begin(), step.before.known.end(), 0);
  infer(analysis, options, step);
}

// `kinds`: all of them.
void find_accesses(Analysis& analysis, std::span<const Step* const> kinds, const AnalysisOptions& options) {
  const Trace& trace = analysis.file->trace;
  const auto calls = analysis.step.calls();
  analysis.objects = objects_of_step(trace, *analysis.table, calls);
  infer(analysis, options);
  // Of a step that somebody names what comes around it may be anything.
  if (!options.step) find_onlookers(trace, *analysis.table, kinds, analysis.step, analysis.accesses, analysis.objects);
  find_communication(trace, analysis.objects, calls, options.rules, options.trust, analysis.accesses);
}

}  // namespace

Analysis read_step(TraceFile file, const AnalysisOptions& options) {
  Analysis analysis;
  order_threads(file.trace);
  analysis.file = std::make_shared<const TraceFile>(std::move(file));
  analysis.chosen = options.policy;
  analysis.trust = options.trust;
  const Trace& trace = analysis.file->trace;
  analysis.table = std::make_shared<const ObjectTable>(trace);
  std::vector<Step> kinds;
  if (options.step) {
    kinds.push_back(step_at(trace, *analysis.table, *options.step));
  } else if (options.one_kind) {
    kinds.push_back(find_step(trace, *analysis.table));
  } else {
    kinds = find_kinds(trace, *analysis.table);
  }
  analysis.step = std::move(kinds.front());
  if (analysis.step.period == 0) {
    analysis.status = kExitNoStep;
    analysis.why_no_schedule = analysis.step.why_none;
    return analysis;
  }
  std::vector<const Step*> all{&analysis.step};
  for (std::size_t i = 1; i < kinds.size(); ++i) all.push_back(&kinds[i]);
  find_accesses(analysis, all, options);
  analysis.others.reserve(kinds.size());
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    Analysis& other = analysis.others.emplace_back();
    other.file = analysis.file;
    other.table = analysis.table;
    other.chosen = options.policy;
    other.trust = options.trust;
    other.step = std::move(kinds[i]);
    all[i] = &other.step;
    find_accesses(other, all, options);
  }
  return analysis;
}

StepAccesses accesses_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                         std::span<const std::uint32_t> calls, const AnalysisOptions& options) {
  HeldPointers::Step step;
  step.calls = calls;
  HeldPointers held(trace, table, std::move(step), options.rules);
  const auto sources = sources_of(trace, options, held, nullptr, nullptr);
  return infer_accesses(trace, table, objects, calls, sources, &held);
}

namespace {

// What the ops depend on, and what the host and the device take for them.
void find_order(Analysis& analysis, const AnalysisOptions& options) {
  const Trace& trace = analysis.file->trace;
  const auto calls = analysis.step.calls();
  analysis.order = std::make_unique<HappensBefore>(trace, calls);
  std::vector<std::uint32_t> event, event2;
  for (std::uint32_t call : calls) {
    event.push_back(trace.calls[call].event);
    event2.push_back(trace.calls[call].event2);
  }
  std::vector<std::uint64_t> place;
  for (const StepObject& object : analysis.objects.objects)
    if (options.memory_in_place) place.push_back(analysis.table->objects()[object.id].base);
  analysis.dependencies = find_dependencies(
      {analysis.accesses, *analysis.order, analysis.objects, std::move(event), std::move(event2), std::move(place)});
  analysis.reduced =
      transitive_reduction(Dag(static_cast<std::uint32_t>(calls.size()), pairs_of(analysis.dependencies)));
  const DeviceModel device;
  analysis.measured = measure(trace, analysis.step);
  analysis.host = host_time(trace, analysis.step);
  analysis.costs = predict_costs(device, trace, *analysis.table, calls, analysis.objects, analysis.accesses,
                                 analysis.measured.op_us);
  std::vector<double> duration;
  std::vector<std::uint8_t> work;
  for (std::size_t op = 0; op < calls.size(); ++op) {
    duration.push_back(analysis.costs[op].device_us);
    work.push_back(does_work(trace.calls[calls[op]].kind));
  }
  analysis.critical = critical_path(analysis.reduced, duration);
  analysis.concurrency = max_concurrency(analysis.reduced, work);
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

Analysis analyze(TraceFile file, const AnalysisOptions& options) {
  Analysis analysis = read_step(std::move(file), options);
  if (analysis.step.period == 0) return analysis;
  find_order(analysis, options);
  plan_step(analysis, options, {});
  for (Analysis& other : analysis.others) {
    find_order(other, options);
    plan_step(other, options, {});
  }
  fit_kinds_together(analysis, options);
  return analysis;
}

}  // namespace nimble::analyzer
