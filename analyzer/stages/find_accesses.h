// What the ops of a step touch: all sources of evidence, in order of strength, and what follows from the ops around.
// One thread. No errors: an op of which too little is known touches everything.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

// The objects and accesses of `analysis.step`, which is one of `kinds`: all of the program's.
void find_accesses(Analysis& analysis, std::span<const Step* const> kinds, const AnalysisOptions& options);

// What any ops of a trace touch: a step's, or those of the whole trace. `objects` are theirs. By all evidence but what
// was observed, which is of steps that repeat.
StepAccesses accesses_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                         std::span<const std::uint32_t> calls, const AnalysisOptions& options);

}  // namespace nimble::analyzer
