// The program's memory as a replayed step sees it: the live allocations, and which of them stands for which object of
// the schedule. Reports releases to the table of observers.
//
// Not synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>

#include "nimble/internal/schedule.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"
#include "replayer/onlookers/onlookers.h"

namespace nimble {

class StepMemory {
 public:
  // `schedule` must outlive it.
  explicit StepMemory(const Schedule& schedule) : objects_(schedule, map_) {}

  MemoryMap& map() { return map_; }
  const MemoryMap& map() const { return map_; }
  ObjectMap& objects() { return objects_; }
  const ObjectMap& objects() const { return objects_; }

  // Reports releases to it from now on.
  void tell(Onlookers& onlookers) { onlookers_ = &onlookers; }

  void add(const Allocation& allocation) {
    map_.add(allocation);
    objects_.changed();
  }
  // The allocation at `base` is released, with those that begin in the `size` bytes from there.
  void release(std::uint64_t base, std::uint64_t size = 0) {
    map_.remove(base, size);
    if (onlookers_) onlookers_->released(base, size);
    objects_.freed(base, size);  // a pool may reuse the address for another of the step's objects
  }

 private:
  MemoryMap map_;
  ObjectMap objects_;
  Onlookers* onlookers_ = nullptr;  // null if everything runs in the program's order
};

}  // namespace nimble
