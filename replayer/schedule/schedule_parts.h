// Reads the parts of a schedule from its JSON, each after the parts that it depends on. Internal to the reader of
// schedules.
//
// Pure functions; any thread. Errors: ScheduleError, which names the field.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/schedule/schedule_field.h"

namespace nimble {

// No real file exceeds this; one that does is broken or hostile.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

void read_streams(const Field& streams, Schedule& schedule);
// Kinds of step, by how the `ops` ops branch.
void read_kinds(const Field& top, std::size_t ops, Schedule& schedule);

ScheduleFunction read_function(const Field& field);
// Further facts from a function's code, besides its accesses. Objects must be known.
void read_code(const Field& field, const Schedule& schedule, ScheduleFunction& result);
std::uint32_t param_bytes(const ScheduleFunction& function);

// The next op. Functions, objects, streams and the ops before it must be known.
ScheduleOp read_op(const Field& field, const Schedule& schedule);

// The next segment, which is number `id`. Ops must be known; `place` is each op's position in its segment's order,
// kNone for later segments.
void read_segment(const Field& field, Schedule& schedule, std::uint32_t id, std::vector<std::uint32_t>& place);

}  // namespace nimble
