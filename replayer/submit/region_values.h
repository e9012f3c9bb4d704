// The values that a region's ops are submitted with, from the calls of its one run; and the program's memory that it
// uses.
//
// Lives while a region's graphs are built. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"
#include "replayer/driver/driver_api.h"
#include "replayer/match/op_match.h"

namespace nimble {

// A successful call of the region, with a copy of its arguments in the program's memory.
struct RegionCall {
  Call call;
  std::vector<std::uint8_t> params;  // of a launch, packed
};

// Memory that a region uses while it lives.
struct RegionMemory {
  std::uint64_t base = 0, size = 0;
};

// Per call: whether it is an asynchronous allocation that outlives the region.
std::vector<std::uint8_t> lasting(std::span<const RegionCall> calls);

class RegionValues {
 public:
  // All must outlive it. `earlier` are the allocations from before the region.
  RegionValues(const Schedule& schedule, CallContext& context, const DriverApi& driver, std::span<const Call> earlier);

  // Takes all of the region's calls. Returns why they are not those of the schedule; empty if they are.
  std::string take(std::span<const RegionCall> calls);
  // Gives the region's own allocations addresses in the arena. After take().
  void place(std::uint64_t arena);

  OpMatch& live() { return live_; }
  // The program's memory that the region uses, as its calls named it and by its objects.
  const std::vector<RegionMemory>& memory() const { return memory_; }
  // Whether some op may use any memory.
  bool uses_all() const { return uses_all_; }

 private:
  std::string take(std::uint32_t op, const RegionCall& call);
  std::string match(std::uint32_t op, const RegionCall& call);
  void use(std::uint64_t address);

  const Schedule& schedule_;
  MemoryMap map_;
  ObjectMap objects_;
  OpMatch live_;
  std::vector<RegionMemory> own_;  // the region's own allocations that it has not released yet
  std::vector<RegionMemory> memory_;
  bool uses_all_ = false;
};

}  // namespace nimble
