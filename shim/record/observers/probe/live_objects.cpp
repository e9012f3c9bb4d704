#include "shim/record/observers/probe/live_objects.h"

#include <vector>

namespace nimble::shim {

bool can_be_copied(MemoryKind memory) {
  switch (memory) {
    case MemoryKind::device:
    case MemoryKind::stream_ordered:
    case MemoryKind::pinned:
    case MemoryKind::managed:
    case MemoryKind::global:
      return true;
    case MemoryKind::registered:
    case MemoryKind::mapped:
    case MemoryKind::external:
      break;
  }
  return false;
}

void LiveObjects::allocated(const Call& call) {
  const std::lock_guard lock(mutex_);
  map_.add({call.memory.address, call.memory.size, call.memory.kind, false, call.context});
  gone_.remove(call.memory.address);
}

void LiveObjects::freed(const Call& call) {
  const std::lock_guard lock(mutex_);
  for (MemoryMap* map : {&map_, &gone_})
    map->remove(call.memory.address, call.kind == CallKind::free ? call.memory.size : 0);
}

void LiveObjects::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::vector<Allocation> gone;
  for (const auto& [base, object] : map_.all()) {
    const bool stays = outlives_contexts(object.memory) || (object.context && object.context != context);
    if (!context || !stays) gone.push_back(object);
  }
  for (const Allocation& object : gone) {
    map_.remove(object.base);
    gone_.add(object);
  }
}

bool LiveObjects::may_hold(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return map_.find(address) != nullptr || gone_.find(address) != nullptr;
}

std::optional<Allocation> LiveObjects::find(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const Allocation* const found = map_.find(address);
  return found ? std::optional(*found) : std::nullopt;
}

}  // namespace nimble::shim
