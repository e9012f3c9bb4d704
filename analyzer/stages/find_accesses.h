// Stage "accesses": what the ops of a step touch, by all sources of evidence in order of strength.
//
// One thread. No errors: an op that too little is known about touches everything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/access/conflicts.h"
#include "analyzer/access/trust.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/options.h"
#include "analyzer/stages/recording.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

// What is known about a step's accesses. Owns what it holds.
struct StepEvidence {
  Evidence trust = kDefaultTrust;  // the weakest evidence that was believed
  StepAccesses accesses;
  std::vector<EvidenceConflict> conflicts;
  // Words that look like addresses and were taken not to be (analyzer/access/non_pointer_words.h). Only for a step that
  // was given (AnalysisOptions::step).
  std::vector<std::uint64_t> non_pointer_words;
};

// For `step`, which is one of `kinds`: all kinds of step of the program. `objects` are those that it touches.
StepEvidence find_accesses(const Recording& input, std::span<const Step* const> kinds, const Step& step,
                           const StepObjects& objects, const AnalysisOptions& options);

// For any ops of a trace: those of a step, or of the whole trace. `objects` are those that they touch. Uses all
// evidence except observations, which are about steps that repeat.
StepAccesses accesses_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                         std::span<const std::uint32_t> calls, const AnalysisOptions& options);

}  // namespace nimble::analyzer
