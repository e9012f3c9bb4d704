// Reads the parts of a schedule from its JSON, each where the parts before it are known. Internal to the reader of
// schedules.
//
// Pure functions; any thread. Errors: ScheduleError, which names the field.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/schedule/schedule_field.h"

namespace nimble {

// Beyond this nothing real lies; a file that says more is broken or hostile.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

void read_streams(const Field& streams, Schedule& schedule);
// Kinds of step, by how the `ops` ops branch.
void read_kinds(const Field& top, std::size_t ops, Schedule& schedule);

ScheduleFunction read_function(const Field& field);
// What a function's code proves besides its accesses. Objects must be known.
void read_code(const Field& field, const Schedule& schedule, ScheduleFunction& result);
std::uint32_t param_bytes(const ScheduleFunction& function);

// The next op. Functions, objects, streams and the ops before it must be known.
ScheduleOp read_op(const Field& field, const Schedule& schedule);

// The next segment, which is number `id`. Ops must be known; `place` is the place of each in the order of its segment,
// kNone for those of segments to come.
void read_segment(const Field& field, Schedule& schedule, std::uint32_t id, std::vector<std::uint32_t>& place);

}  // namespace nimble
