// The whole pipeline: from a trace to everything that the reports say and the schedule is built from.
//
//   input -> steps -> objects -> accesses -> order -> times -> segments -> policies -> plan
//
// The first four are read_steps() (analyzer/stages/read_steps.h). One thread. Errors: InputError from reading; if no
// step is found, or no schedule can serve it, the analysis says so in `plan.status` and `plan.why_no_schedule`.
#pragma once

#include "analyzer/analysis.h"

namespace nimble::analyzer {

Analysis analyze(TraceFile file, const AnalysisOptions& options);

}  // namespace nimble::analyzer
