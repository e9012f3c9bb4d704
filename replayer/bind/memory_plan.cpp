#include "replayer/bind/memory_plan.h"

#include <algorithm>

namespace nimble {

void MemoryPlan::place(std::uint64_t arena) {
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    if (schedule_.objects[i].step_local) objects_.place_by_plan(i, arena + schedule_.objects[i].plan_offset);
  }
  placed_ = true;
}

void MemoryPlan::note_leftovers() {
  leftovers_.clear();
  for (std::uint32_t i = 0; objects_.all_taken() != 0 && i < schedule_.objects.size(); ++i) {
    if (objects_.taken(i)) leftovers_.push_back(i);
  }
}

// Within a step on one stream no two objects that the program has at the same time share bytes in the plan; several
// threads may allocate and release in a different order than when recorded.
bool MemoryPlan::is_in_use(std::uint32_t object) const {
  const ScheduleObject& mine = schedule_.objects[object];
  const auto meets = [&](std::uint32_t other) {
    const ScheduleObject& its = schedule_.objects[other];
    const bool apart =
        mine.plan_offset + mine.size <= its.plan_offset || its.plan_offset + its.size <= mine.plan_offset;
    return objects_.taken(other) && (other == object || !apart);
  };
  if (schedule_.streams.size() == 1) return std::any_of(leftovers_.begin(), leftovers_.end(), meets);
  for (std::uint32_t other = 0; objects_.all_taken() != 0 && other < schedule_.objects.size(); ++other)
    if (meets(other)) return true;
  return false;
}

std::uint32_t MemoryPlan::begins_at(std::uint64_t offset) const {
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    if (object.step_local && object.plan_offset == offset && objects_.taken(i)) return i;
  }
  return kNone;
}

std::uint32_t MemoryPlan::holds(std::uint64_t offset) const {
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    if (objects_.taken(i) && offset - object.plan_offset < object.size) return i;
  }
  return kNone;
}

std::uint64_t MemoryPlan::bytes_in_use() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i)
    if (objects_.taken(i)) bytes += schedule_.objects[i].size;
  return bytes;
}

}  // namespace nimble
