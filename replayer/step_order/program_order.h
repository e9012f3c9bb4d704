// Segments in the order in which the program has their ops. Pure functions.
#pragma once

#include "nimble/internal/schedule.h"

namespace nimble {

// The same ops in the program's order, with which every order that a schedule enforces agrees; and whether the segment
// has that order as it is.
ScheduleSegment in_program_order(const ScheduleSegment& segment);
bool has_program_order(const ScheduleSegment& segment);

}  // namespace nimble
