// Everything that the analyzer finds out about a trace: what the reports say and the schedule is built from.
//
// One result per stage; analyzer/stages/ says what each holds. A stage's function takes the results before it as const
// and returns its own. A finished Analysis is immutable, and any thread may read it. Op numbers are indices into the
// step.
#pragma once

#include <string>
#include <vector>

#include "analyzer/options.h"
#include "analyzer/stages/cut_step.h"
#include "analyzer/stages/find_order.h"
#include "analyzer/stages/plan_step.h"
#include "analyzer/stages/predict_times.h"
#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {

// One kind of step: what was read, and what follows from it. If no step was found, only `plan` says so.
struct StepAnalysis : StepReading {
  StepOrder order;
  StepTimes times;
  StepSegments cut;
  StepPlan plan;
};

// The kind of step that does the most work, and beside it the others that one schedule can serve together with it.
struct Analysis : StepAnalysis {
  std::vector<StepAnalysis> others;
  std::vector<std::string> kinds_left_out;  // why the schedule cannot serve further kinds, one line each
};

}  // namespace nimble::analyzer
