// Checks the kinds of step and the memory plan of a schedule that was read: what only all of its ops together can show.
// Internal to the reader of schedules, which has seen to it that every number and index in it is in range.
//
// Keeps nothing of the schedule. Pure function; any thread. Errors: ScheduleError, as of the reader.
#pragma once

#include <string>

#include "nimble/internal/schedule.h"

namespace nimble {

// Branches and ends: each op is of some kind, no segment goes beyond a place where kinds part or end, and what an op
// refers to comes before it in every kind that has it. Their indices are in range. Throws ScheduleError, which names
// `source` and the branch, segment or op.
void check_kinds(const Schedule& schedule, const std::string& source);

// Step-local objects, in each kind that has them: one alloc, then one free, and no use outside; each inside the arena;
// and bytes are shared only where the order allows it. Behind check_kinds(). Throws ScheduleError, which names `source`
// and the object.
void check_plan(const Schedule& schedule, const std::string& source);

}  // namespace nimble
