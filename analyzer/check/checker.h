// Checks a schedule against the trace that it was made from: what the schedule itself enforces must order every two ops
// of the step that conflict, in the order in which the program submitted them. Every kind of step that the schedule has
// is checked by itself.
//
// The checker is there to find mistakes in everything between the accesses and the schedule file, so it shares none of
// that code: it takes over the trace, the objects and the accesses. Two ops conflict if
//   - they touch the same byte, and one of them writes it; the step's own memory is compared by where the schedule's
//     memory plan puts it, so that a plan that puts two objects into one place is checked as well;
//   - or one of them is a barrier, which may do anything;
//   - or both may be communicating; or one may be communicating through memory that others can reach, and the other
//     touches such memory (analyzer/order/communication.h);
//   - or the later one records an event, or writes memory that others can reach, and the program has put the other
//     before it: that may be taken as a sign that all before it is done;
//   - or the earlier one may be waiting for what others write, and the program has put the other after it.
// If the step uses several streams, the program's own streams and events, too, must keep objects apart that share
// bytes; and a wait that is in no graph must be for an event that the step has recorded. A schedule enforces the order
// of its direct ops and its segments, and within a segment that of its graph's edges.
//
// Pure; any thread. Time is near linear in ops and accesses; memory is bounded by them. Errors: InputError if the text
// is not a schedule, or belongs to another trace.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "analyzer/analysis.h"
#include "analyzer/check/schedule_order.h"

namespace nimble::analyzer {

// Two ops that conflict and that nothing in the schedule orders.
struct Unordered {
  std::uint32_t first = 0, second = 0;
  std::string why;         // one line
  std::uint32_t kind = 0;  // of step: index into `kinds`
};

struct CheckResult {
  // Among all such pairs of a kind, one with the smallest `second`; among these, the one with the largest `first`.
  std::optional<Unordered> unordered;
  std::uint64_t segments = 0;
  // Pairs inside segments that were looked up. Pairs that others imply are not counted: if b overwrites what a wrote,
  // and c reads that, then a comes before c if a comes before b, and b before c.
  std::uint64_t pairs = 0;
};

// `kinds`: the trace's kinds of step, in their order. `file` names the text in errors.
CheckResult check_schedule(std::span<const StepReading* const> kinds, const ScheduleOrder& schedule,
                           const std::string& file);
// The same, for the kinds of a finished analysis.
CheckResult check_schedule(const Analysis& analysis, const std::string& text, const std::string& file);

}  // namespace nimble::analyzer
