// Finds the step: the sequence of ops that the program repeats.
//
// Ops are compared by signature: what was launched or copied, in which shape, on which stream, without addresses,
// scalars and event ids. The step is what repeats in that sequence (repetition.h). If the program has marked its steps
// itself, these count (analyzer/step/marked_steps.h), and there is no search; such a step need not repeat.
//
// The functions are pure: they keep no state, and any thread may call them. Counts are ops. No errors: a trace without
// a step gives Step::period 0 and a reason.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analyzer/memory/objects.h"
#include "analyzer/step/repetition.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// A step and all its occurrences in a trace.
struct Step {
  std::vector<std::uint32_t> ops;         // the trace's ops that ran, as indices into Trace::calls
  std::vector<std::uint64_t> signatures;  // per op, of op_signature(); only for the first kind of step
  std::uint32_t period = 0;               // ops in a step; 0 if none was found
  std::vector<std::uint32_t> begins;      // occurrences: indices into `ops`
  std::string why_none;                   // if none was found
  std::uint32_t marked = 0;               // how many the program marked itself, of any kind; 0: the step was found
  std::string name;                       // that the program gave to this step when it marked it; may be empty

  // Pointers play roles: the first object that a step names is role 0, and so on. Occurrences with equal roles
  // throughout share a pattern. One occurrence of the most common pattern is analysed.
  std::uint32_t representative = 0;          // index into `begins`
  std::uint32_t patterns = 0;                // how many different ones there are
  std::uint32_t same_pattern = 0;            // occurrences that share the representative's
  std::vector<std::uint8_t> shares_pattern;  // per occurrence

  // The representative's ops, as indices into Trace::calls.
  std::span<const std::uint32_t> calls() const { return calls_of(representative); }
  std::span<const std::uint32_t> calls_of(std::uint32_t occurrence) const {
    return {ops.data() + begins[occurrence], period};
  }
  std::uint64_t prologue() const { return begins.empty() ? 0 : begins.front(); }
  std::uint64_t epilogue() const { return begins.empty() ? 0 : ops.size() - begins.back() - period; }
  std::uint64_t extras() const { return ops.size() - prologue() - epilogue() - std::uint64_t{period} * begins.size(); }
};

Step find_step(const Trace& trace, const ObjectTable& objects, const LeastShares& least = {});

// What is known about some of the trace's ops, in ascending order, except suggestions and pointers.
SequenceHints hints_of(const Trace& trace, const ObjectTable& objects, std::span<const std::uint32_t> ops);

// Fills in what Step says about patterns, from its occurrences. `fixed`: the occurrence that is to be the
// representative; kNone: the best is chosen.
void choose_representative(Step& step, const ObjectTable& objects, std::uint32_t fixed = kNone);

// A step that was given: all ops that ran from the one with this seq to the one with that.
struct StepPlace {
  std::uint64_t first_seq = 0, last_seq = 0;
  std::uint32_t ops = 0;  // how many there must be; 0: as many as there are
};

// That step as the only occurrence and the representative. If the trace has no such ops, period 0 and a reason.
Step step_at(const Trace& trace, const ObjectTable& objects, const StepPlace& place);

// Whether an op of this kind occupies the device, rather than only managing memory or events.
bool does_work(CallKind kind);

// Whether the host can notice through this call how far the GPU has come.
bool observes(const TraceCall& call);

// A hash of what an op does, without addresses, scalars and ids of events.
std::uint64_t op_signature(const Trace& trace, const ObjectTable& objects, std::uint32_t call);

}  // namespace nimble::analyzer
