#include "analyzer/stages/plan_step.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "analyzer/base/text.h"

namespace nimble::analyzer {
namespace {

// The memory plan of a step for any lanes.
class MemoryPlanner {
 public:
  MemoryPlanner(const StepReading& reading, const StepSegments& segments, const PlacesOfObjects& places,
                std::uint64_t gap)
      : objects_(reading.objects),
        segments_(segments.segments),
        uses_(uses_of_step(*reading.input.table, reading.step.calls(), reading.objects, reading.evidence.accesses)),
        streams_(segments.streams.of_op, segments.segments.record,
                 static_cast<std::uint32_t>(segments.streams.streams.size())),
        places_(places),
        gap_(gap) {}

  MemoryPlan plan(const std::vector<SegmentPlan>& lanes) const {
    return plan_memory(objects_, uses_, segments_, lanes, streams_, places_, gap_);
  }

 private:
  const StepObjects& objects_;
  const Segmentation& segments_;
  const StepUses uses_;
  const StreamPaths streams_;
  const PlacesOfObjects& places_;
  const std::uint64_t gap_;
};

void try_policies(const LanePlanner& planner, const AnalysisOptions& options, StepPlan& result) {
  result.chosen = options.policy;
  for (std::string_view name : kPolicyNames) {
    LanePlans made = planner.plan(name, options.max_lanes);
    result.policies.push_back(made.outcome);
    if (name == result.chosen) result.lanes = std::move(made.plans);
  }
}

// Replaces lanes that need too much memory by more sequential ones: `cost` with fewer and fewer lanes, at last
// `single`. If not even that fits, nothing does, and it stays: the program's own order needs the least.
void keep_to_limit(const LanePlanner& planner, const MemoryPlanner& memory_planner, const AnalysisOptions& options,
                   StepPlan& result) {
  const std::uint64_t limit = *options.memory_limit;
  if (!result.memory.possible || result.memory.arena_bytes <= limit) return;
  result.memory_without_limit = result.memory.arena_bytes;
  LanePlans best = planner.plan("single", 1);
  MemoryPlan memory = memory_planner.plan(best.plans);
  std::uint32_t lanes = 0;
  for (const SegmentPlan& plan : result.lanes) lanes = std::max(lanes, plan.assignment.lanes);
  lanes = std::min(lanes, options.max_lanes);
  if (result.chosen == "cost") lanes /= 2;  // it has been tried with all of them
  bool found = memory.arena_bytes > limit;  // then there is nothing to look for
  for (; !found && lanes > 1; lanes /= 2) {
    LanePlans wider = planner.plan("cost", lanes);
    MemoryPlan needs = memory_planner.plan(wider.plans);
    found = needs.arena_bytes <= limit;
    if (!found) continue;
    best = std::move(wider);
    memory = std::move(needs);
  }
  result.lanes = std::move(best.plans);
  result.memory = std::move(memory);
  result.chosen = best.outcome.policy;
  for (PolicyOutcome& other : result.policies)
    if (other.policy == best.outcome.policy) other = best.outcome;
}

// How much the chosen lanes leave unordered, and how well that is known.
Parallelism parallelism_of(const StepReading& reading, const Segmentation& segments,
                           const std::vector<SegmentPlan>& lanes) {
  ParallelismCounter counter;
  for (std::size_t s = 0; s < lanes.size(); ++s) {
    std::vector<Evidence> evidence;
    for (std::uint32_t op : segments.segments[s].ops) evidence.push_back(reading.evidence.accesses.ops[op].evidence);
    counter.add(lanes[s].enforced, evidence);
  }
  return counter.result();
}

struct Verdict {
  ExitStatus status = kExitOk;
  std::string why;
};

Verdict verdict(const Trace& trace, const Dependencies& dependencies, const StreamsOfStep& streams,
                const MemoryPlan& memory, const AnalysisOptions& options) {
  if (trace.coverage.recorded < trace.coverage.seen && !options.accept_partial)
    return {kExitUnschedulable, "the recorder saw " + std::to_string(trace.coverage.recorded) + " of " +
                                    std::to_string(trace.coverage.seen) +
                                    " launches, copies and sets: what it missed may touch anything (--accept-partial "
                                    "to go on anyway)"};
  if (trace.dropped > 0)
    return {kExitFailure, "the recorder dropped " + std::to_string(trace.dropped) +
                              " events, so the trace is not complete; record again"};
  if (dependencies.race_count > 0)
    return {kExitUnschedulable,
            "the program leaves ops unordered that touch the same memory, or may be communicating (" +
                races_text(dependencies) + "): they may be communicating with each other, and cannot be ordered"};
  if (!streams.why_not.empty()) return {kExitUnschedulable, streams.why_not};
  if (!memory.possible)
    return {kExitUnschedulable, "the objects of one step take more address space than a memory plan may have"};
  if (options.memory_limit && memory.arena_bytes > *options.memory_limit)
    return {kExitUnschedulable, "the step's own objects take " + bytes_text(memory.arena_bytes) +
                                    " even one op after another, more than the " + bytes_text(*options.memory_limit) +
                                    " of --memory-limit"};
  return {};
}

}  // namespace

StepPlan plan_step(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                   const StepSegments& segments, const AnalysisOptions& options, const PlacesOfObjects& places) {
  const LanePlanner planner(reading, order, times, segments.segments);
  const MemoryPlanner memory_planner(reading, segments, places, options.memory_in_place ? kPlanGap : 0);
  StepPlan result;
  try_policies(planner, options, result);
  result.memory = memory_planner.plan(result.lanes);
  if (options.memory_limit) keep_to_limit(planner, memory_planner, options, result);
  result.parallelism = parallelism_of(reading, segments.segments, result.lanes);
  Verdict found = verdict(reading.input.trace(), order.dependencies, segments.streams, result.memory, options);
  result.status = found.status;
  result.why_no_schedule = std::move(found.why);
  return result;
}

}  // namespace nimble::analyzer
