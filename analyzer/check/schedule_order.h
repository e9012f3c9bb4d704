// What a schedule file says about order and place, which is all that the checker needs.
//
// Read from the file's text, not taken from what wrote it, so that a mistake of the writer does not vouch for itself.
// Pure; any thread. The result owns what it holds. Errors: InputError, naming the field, if the text is not a schedule
// of version kScheduleVersion, or contradicts itself; an index out of its list is found here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/access/trust.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

struct ScheduleOrder {
  struct Op {
    CallKind kind = CallKind::opaque;
    Submit submit = Submit::direct;
    std::uint32_t segment = kNone;
    std::uint32_t record = kNone;  // order: as in ScheduleOp
    std::uint32_t object = kNone;  // plan: likewise
  };

  std::string trace_digest;
  Evidence trust = kDefaultTrust;  // the weakest evidence that was believed when it was made
  std::uint64_t arena_bytes = 0;
  std::vector<ScheduleObject> objects;
  std::vector<Op> ops;
  // Per segment: the edges of its graph, between ops of this segment, the earlier op first.
  std::vector<std::vector<std::array<std::uint32_t, 2>>> edges;
  // Per kind of step: its ops, ascending.
  std::vector<std::vector<std::uint32_t>> kinds;
};

// `file` names the text in errors.
ScheduleOrder read_schedule_order(const std::string& text, const std::string& file);

// One kind of step by itself: its ops and segments are renumbered, the objects stay.
ScheduleOrder order_of_kind(const ScheduleOrder& order, std::size_t kind);

}  // namespace nimble::analyzer
