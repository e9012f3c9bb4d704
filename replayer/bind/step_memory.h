// The program's memory as a replayed step sees it: which allocations are alive, and which of them stands for which
// object of the schedule. Whoever watches what touches that memory hears of releases from here.
//
// Not synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>

#include "nimble/internal/schedule.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"
#include "replayer/order/onlookers.h"

namespace nimble {

class StepMemory {
 public:
  // `schedule` must outlive it.
  explicit StepMemory(const Schedule& schedule) : objects_(schedule, map_) {}

  MemoryMap& map() { return map_; }
  const MemoryMap& map() const { return map_; }
  ObjectMap& objects() { return objects_; }
  const ObjectMap& objects() const { return objects_; }

  // It hears of releases from now on.
  void tell(Onlookers& onlookers) { onlookers_ = &onlookers; }

  void add(const Allocation& allocation) {
    map_.add(allocation);
    objects_.changed();
  }
  // The allocation at `base` goes, with those that begin in the `size` bytes from there.
  void release(std::uint64_t base, std::uint64_t size = 0) {
    map_.remove(base, size);
    if (onlookers_) onlookers_->released(base, size);
    objects_.freed(base, size);  // a pool may give the address to another of the step's objects
  }

 private:
  MemoryMap map_;
  ObjectMap objects_;
  Onlookers* onlookers_ = nullptr;  // null where nothing runs in another order than the program's
};

}  // namespace nimble
