#include "replayer/bind/memory_map.h"

namespace nimble {

void MemoryMap::add(const Allocation& allocation) {
  if (allocation.size == 0) return;
  auto at = live_.upper_bound(allocation.base);
  if (at != live_.begin()) {
    const auto before = std::prev(at);
    if (before->second.base + before->second.size > allocation.base) live_.erase(before);
  }
  while (at != live_.end() && at->first - allocation.base < allocation.size) at = live_.erase(at);
  live_[allocation.base] = allocation;
  nearby_.came(allocation.base, allocation.size);
}

const Allocation* MemoryMap::find(std::uint64_t address) const {
  auto at = live_.upper_bound(address);
  if (at == live_.begin()) return nullptr;
  --at;
  return address - at->first < at->second.size ? &at->second : nullptr;
}

const Allocation* MemoryMap::begins_after(std::uint64_t address, std::uint64_t within) const {
  const auto at = live_.upper_bound(address);
  return at != live_.end() && at->first - address <= within ? &at->second : nullptr;
}

}  // namespace nimble
