// Schedules that tests put together op by op.
#pragma once

#include <cstdint>

#include "nimble/internal/schedule.h"

namespace nimble {

inline ScheduleOp& add_op(Schedule& schedule, CallKind kind, Submit submit, std::uint32_t segment = kNone) {
  ScheduleOp& added = schedule.ops.emplace_back();
  added.kind = kind;
  added.submit = submit;
  added.segment = segment;
  return added;
}

// Of the schedule's first function, with a pointer to the object as its first parameter; in a graph.
inline void add_launch(Schedule& schedule, std::uint32_t segment, std::uint32_t object) {
  ScheduleOp& added = add_op(schedule, CallKind::launch, Submit::graph, segment);
  added.function = 0;
  added.grid = added.block = {1, 1, 1};
  added.pointers = {{0, {object, 0, false}}};
}

}  // namespace nimble
