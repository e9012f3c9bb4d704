// Checks a schedule against the trace that it was made from: every two ops of the step that conflict must be ordered by
// what the schedule itself enforces, in the order in which the program submitted them. So it does for every kind of
// step that the schedule has, each by itself.
//
// It is there to find mistakes of everything between the accesses and the schedule file, so it shares none of that:
// what it takes over is the trace, the objects and the accesses. Two ops conflict where
//   - they touch the same byte, and one of them writes it; memory of the step's own is compared by where the schedule's
//     memory plan puts it, so that a plan that puts two objects into one place is checked with the rest;
//   - or one of them is a barrier, of which nothing is known;
//   - or both may be talking to somebody else; or one may over memory that others reach, and the other touches such
//     memory (analyzer/order/communication.h);
//   - or the later one records an event, or writes memory that others reach, and the program has put the other before
//     it: somebody may take that for a sign that all before it is done;
//   - or the earlier one may be waiting for what others write, and the program has put the other behind it.
// Where the step uses several streams, objects that share bytes must be kept apart by the program's own streams and
// events, too; and a wait that no graph holds must be for an event that the step has recorded. A schedule enforces the
// order of its direct ops and its segments, and in a segment that of its graph's edges.
//
// Pure; any thread. Time is near linear in ops and accesses; memory is bounded by them. Errors: InputError where the
// text is no schedule, or belongs to another trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analyzer/analysis.h"
#include "analyzer/check/schedule_order.h"

namespace nimble::analyzer {

// Two ops that conflict and that nothing in the schedule orders.
struct Unordered {
  std::uint32_t first = 0, second = 0;
  std::string why;         // one line
  std::uint32_t kind = 0;  // of step: 0 is the first, the others follow as in Analysis::others
};

struct CheckResult {
  // Of all such pairs of a kind one with the smallest `second`; of these, the one with the largest `first`.
  std::optional<Unordered> unordered;
  std::uint64_t segments = 0;
  // Pairs inside segments that were looked up. A pair that others imply is none of them: where b overwrites what a
  // wrote and c reads it, a comes before c if a comes before b, and b before c.
  std::uint64_t pairs = 0;
};

// `step` needs no more than read_step() finds out. `file` names the text in errors.
CheckResult check_schedule(const Analysis& step, const std::string& text, const std::string& file);
CheckResult check_schedule(const Analysis& step, const ScheduleOrder& schedule, const std::string& file);

}  // namespace nimble::analyzer
