// Stages "policies" and "plan": lanes for each segment, places for the step's own objects, and whether a schedule can
// serve the step.
//
// One thread. No errors: what speaks against a schedule is part of the result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/options.h"
#include "analyzer/order/parallelism.h"
#include "analyzer/plan/memory_layout.h"
#include "analyzer/policies/segment_plan.h"
#include "analyzer/stages/cut_step.h"
#include "analyzer/stages/find_order.h"
#include "analyzer/stages/lane_planner.h"
#include "analyzer/stages/predict_times.h"
#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {

// Owns what it holds.
struct StepPlan {
  std::vector<PolicyOutcome> policies;  // in the order of kPolicyNames
  std::string chosen;                   // the policy that made `lanes`
  std::vector<SegmentPlan> lanes;       // per segment
  MemoryPlan memory;                    // under the order that `lanes` enforce
  // What the requested policy's own plan would take, if `chosen` stands in for it because of the memory limit; else 0.
  std::uint64_t memory_without_limit = 0;
  Parallelism parallelism;  // of `lanes`

  ExitStatus status = kExitOk;
  std::string why_no_schedule;  // unless status is kExitOk
};

// `places`: where some objects must be, because schedules of other kinds of step have them there.
StepPlan plan_step(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                   const StepSegments& segments, const AnalysisOptions& options, const PlacesOfObjects& places = {});

}  // namespace nimble::analyzer
