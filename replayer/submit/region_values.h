// What a region's ops are submitted with, as the calls of its one run tell; and what memory of the program's it uses.
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

// A call of the region that succeeded, with what the program's own memory held of it.
struct RegionCall {
  Call call;
  std::vector<std::uint8_t> params;  // of a launch, packed
};

// Memory that a region uses while it lives.
struct RegionMemory {
  std::uint64_t base = 0, size = 0;
};

// Per call: whether it is an asynchronous allocation of the region that is still there when that ends.
std::vector<std::uint8_t> lasting(std::span<const RegionCall> calls);

// An op of a region, in words.
std::string describe(const Schedule& schedule, std::uint32_t op);

class RegionValues {
 public:
  // All must outlive it. `earlier` are the allocations from before the region.
  RegionValues(const Schedule& schedule, CallContext& context, const DriverApi& driver, std::span<const Call> earlier);

  // The region's calls, all of them. Why they are not those of the schedule; empty where they are.
  std::string take(std::span<const RegionCall> calls);
  // What the region allocates and releases itself gets addresses of its own, here. After take().
  void place(std::uint64_t arena);

  OpMatch& live() { return live_; }
  // The program's memory that the region uses, as its calls named it and by its objects.
  const std::vector<RegionMemory>& memory() const { return memory_; }
  // Some op may use any memory.
  bool uses_all() const { return uses_all_; }

 private:
  std::string take(std::uint32_t op, const RegionCall& call);
  std::string match(std::uint32_t op, const RegionCall& call);
  void use(std::uint64_t address);

  const Schedule& schedule_;
  MemoryMap map_;
  ObjectMap objects_;
  OpMatch live_;
  std::vector<RegionMemory> own_;  // what the region allocates and releases itself, and has not released yet
  std::vector<RegionMemory> memory_;
  bool uses_all_ = false;
};

}  // namespace nimble
