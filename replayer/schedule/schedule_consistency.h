// Checks the kinds of step and the memory plan of a schedule, which need all of its ops. Internal to the reader of
// schedules, which has checked that every number and index is in range.
//
// Pure functions; any thread. Errors: ScheduleError, as in the reader.
#pragma once

#include <string>

#include "nimble/internal/schedule.h"

namespace nimble {

// Branches and ends: each op is in some kind, no segment extends beyond a point where kinds diverge or end, and what an
// op refers to precedes it in every kind that has it. Their indices are in range. Throws ScheduleError, which names
// `source` and the branch, segment or op.
void check_kinds(const Schedule& schedule, const std::string& source);

// Step-local objects, in each kind that has them: one alloc, then one free, and no use outside; each inside the arena;
// and bytes are shared only where the order allows it. After check_kinds(). Throws ScheduleError, which names `source`
// and the object.
void check_plan(const Schedule& schedule, const std::string& source);

}  // namespace nimble
