// Segments with their ops in program order. Pure functions.
#pragma once

#include "nimble/internal/schedule.h"

namespace nimble {

// The same ops in program order, which is consistent with every order that a schedule enforces; and whether the segment
// already has it.
ScheduleSegment in_program_order(const ScheduleSegment& segment);
bool has_program_order(const ScheduleSegment& segment);

}  // namespace nimble
