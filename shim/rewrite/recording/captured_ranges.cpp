#include "shim/rewrite/recording/captured_ranges.h"

#include <algorithm>

namespace nimble::shim {

CapturedRanges::Ranges CapturedRanges::add(const CaptureMemory& memory) {
  const auto in_block = [&](std::uint64_t address) {
    return std::any_of(memory.blocks.begin(), memory.blocks.end(),
                       [&](const CaptureMemory::Block& block) { return address - block.base < block.size; });
  };
  Ranges ranges;  // the largest that was at an address
  for (const CaptureMemory::Event& event : memory.events)
    if (!in_block(event.address)) ranges[event.address] = std::max(ranges[event.address], event.size);
  for (const CaptureMemory::Block& block : memory.blocks) ranges[block.base] = block.size;
  const std::lock_guard lock(mutex_);
  for (const auto& [address, size] : ranges) ranges_[address] = size;
  return ranges;
}

void CapturedRanges::remove(const std::vector<MemorySlot>& slots) {
  const std::lock_guard lock(mutex_);
  for (const MemorySlot& slot : slots) ranges_.erase(slot.address);
}

CapturedRanges::Ranges CapturedRanges::all() const {
  const std::lock_guard lock(mutex_);
  return ranges_;
}

}  // namespace nimble::shim
