// The program's live allocations, by address. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

#include "nimble/internal/nearby.h"
#include "nimble/internal/trace.h"

namespace nimble {

struct Allocation {
  std::uint64_t base = 0, size = 0;
  MemoryKind memory = MemoryKind::device;
  bool arena = false;           // the replayer's own, which holds many of the program's allocations
  CUcontext context = nullptr;  // whose end also ends it, if known
};

class MemoryMap {
 public:
  // Allocations that the new one overlaps are gone: the driver would not have reused their addresses otherwise.
  void add(const Allocation& allocation);
  // Forgets the allocation that starts at `base`, if there is one, and those that start in the `size` bytes from there.
  void remove(std::uint64_t base, std::uint64_t size = 0) {
    live_.erase(base);
    for (auto at = live_.lower_bound(base); at != live_.end() && at->first - base < size;) at = live_.erase(at);
  }
  void clear() { live_.clear(); }
  // All of them, by address.
  const std::map<std::uint64_t, Allocation>& all() const { return live_; }
  // The live allocation that holds `address`, or null. Valid until the next add() or remove().
  const Allocation* find(std::uint64_t address) const;
  // The allocation that begins after `address`, at most `within` bytes away, or null.
  const Allocation* begins_after(std::uint64_t address, std::uint64_t within) const;
  // Whether memory has come near an address. Loaded code may bring some, too, which is reported here with or without
  // the lock.
  Nearby& nearby() { return nearby_; }
  const Nearby& nearby() const { return nearby_; }
  // Whether an allocation may hold it: cheap, and nearly always false for non-addresses.
  bool may_hold(std::uint64_t address) const {
    if (live_.empty() || address < live_.begin()->first) return false;
    const Allocation& last = live_.rbegin()->second;
    return address < last.base + last.size;
  }

 private:
  std::map<std::uint64_t, Allocation> live_;
  Nearby nearby_;
};

}  // namespace nimble
