// The first stages together: which steps a trace has, which objects each touches, and how.
//
// One thread. Errors: none beyond what reading the trace threw; a trace without a step gives one reading with period 0,
// whose Step says why.
#pragma once

#include <vector>

#include "analyzer/input/trace_reader.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/options.h"
#include "analyzer/stages/find_accesses.h"
#include "analyzer/stages/recording.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

// One kind of step as it was recorded: all that a schedule can be checked against. Op numbers are indices into the
// step.
struct StepReading {
  Recording input;
  Step step;
  // The rest only if a step was found.
  StepObjects objects;
  StepEvidence evidence;
};

// The trace with its threads in one order, and its objects.
Recording recording_of(TraceFile file);

// All kinds of step, the one that does the most work first; never empty.
std::vector<StepReading> read_steps(TraceFile file, const AnalysisOptions& options);

}  // namespace nimble::analyzer
