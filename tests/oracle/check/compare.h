// What the analyzer infers of each op's accesses, against what the op really touched.
//
// An inferred access may be wider than the truth, never narrower: every byte that an op touched must lie in one of its
// inferred accesses, and every byte that it wrote in one that writes. An op that is assumed to touch anything covers
// all. Both sides come from one process: the shim recorded it while the simulated driver watched.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/analysis.h"
#include "tests/oracle/check/exact.h"

namespace nimble::oracle {

struct Width {
  std::uint64_t ops = 0, inferred = 0, exact = 0;         // bytes, read or written
  std::uint64_t inferred_written = 0, exact_written = 0;  // bytes
  void add(const Width& other);
};

struct Comparison {
  std::vector<std::string> failures;  // one line each: what was missed, and ops that could not be compared
  std::array<Width, kEvidences> width;
  double widest = 1;  // of one op that is not assumed: inferred bytes over touched ones
  std::string widest_op;
  // Ops that ran and that no call of the trace submitted: the recorder missed them, or they are the shim's own.
  std::uint64_t unrecorded = 0;
  std::string first_unrecorded;
  // Of the step that the schedule is made from: pairs of ops that conflict, as inferred and in truth.
  std::uint64_t pairs_inferred = 0, pairs_exact = 0;
};

// The ops of `exact` that each call of the trace submitted; empty where there are none. A call of the trace that must
// have submitted something and did not is a failure.
std::vector<std::vector<const ExactOp*>> match(const Trace& trace, const std::vector<ExactOp>& exact,
                                               std::vector<std::string>& failures);

// All ops of the trace, in every repeat of the step and outside it. `step` comes from read_steps() or analyze() with
// the same options.
Comparison compare(const analyzer::StepReading& step, const std::vector<ExactOp>& exact,
                   const analyzer::AnalysisOptions& options);

// The step's true accesses, in the analyzer's own form, as the checker takes them. Unknown ops stay as they are.
analyzer::StepAccesses exact_accesses(const analyzer::StepReading& step, const std::vector<ExactOp>& exact);

// A table for people.
std::string text_of(const Comparison& comparison);

}  // namespace nimble::oracle
