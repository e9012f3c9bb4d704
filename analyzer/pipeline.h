// The whole pipeline: from a trace to everything that the reports say and the schedule is built from.
//
//   read -> step -> objects -> accesses -> dependencies -> reduce -> segments -> assign -> predict
//
// One thread. Errors: InputError from reading; where no step is found, or a step that no schedule can serve, the
// Analysis says so in `status` and `why_no_schedule`.
#pragma once

#include "analyzer/analysis.h"

namespace nimble::analyzer {

Analysis analyze(TraceFile file, const AnalysisOptions& options);

// The beginning of that: the kinds of step, their objects and their accesses, and nothing behind.
Analysis read_step(TraceFile file, const AnalysisOptions& options);

}  // namespace nimble::analyzer
