// See memory.h.
#include "tests/simcuda/memory/memory.h"

#include <algorithm>

namespace simcuda {

Block* Memory::allocate(BlockKind kind, std::uint64_t bytes, std::uint64_t capacity, CUcontext context) {
  const bool has_its_own = kind != BlockKind::kGraph;
  if (has_its_own && capacity > left()) return nullptr;
  const std::uint64_t base = region_.take(capacity);
  if (base == 0) return nullptr;
  Block* block = adopt(kind, base, bytes, context);
  block->capacity = capacity;
  if (has_its_own) used_ += capacity;
  return block;
}

bool Memory::use(std::uint64_t bytes) {
  if (bytes > left()) return false;
  used_ += bytes;
  return true;
}

Block* Memory::adopt(BlockKind kind, std::uint64_t base, std::uint64_t bytes, CUcontext context) {
  Block& block = blocks_[base];
  block = Block();
  block.base = base;
  block.capacity = block.bytes = block.live_bytes = bytes;
  block.kind = kind;
  block.allocated = block.live = true;
  block.id = next_id_++;
  block.context = context;
  return &block;
}

void Memory::renew(Block* block) {
  block->id = next_id_++;
  block->synchronous_copies = false;
}

void Memory::release(Block* block) {
  if (region_.contains(block->base) && block->kind != BlockKind::kMapped) {
    region_.give_back(block->base, block->capacity);
    if (block->kind != BlockKind::kGraph) used_ -= block->capacity;
  }
  blocks_.erase(block->base);
}

Block* Memory::find(std::uint64_t address) {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address - block.base < std::max<std::uint64_t>(block.capacity, 1) ? &block : nullptr;
}

Block* Memory::find_allocated(std::uint64_t address) {
  Block* block = find(address);
  return block != nullptr && block->allocated && address - block->base < block->bytes ? block : nullptr;
}

Block* Memory::find_known(std::uint64_t address) {
  Block* block = find_allocated(address);
  return block != nullptr && (block->kind != BlockKind::kGraph || block->outstanding) ? block : nullptr;
}

bool Memory::accessible(std::uint64_t address, std::uint64_t bytes, bool host_memory_too, std::uint64_t* where) {
  const std::uint64_t end = address + bytes;
  while (address < end) {
    const Block* block = find(address);
    if (block == nullptr) {
      *where = address;
      return host_memory_too && !region_.contains(address);
    }
    if (!block->live || address - block->base >= block->live_bytes) {
      *where = address;
      return false;
    }
    address = block->base + block->live_bytes;
  }
  return true;
}

}  // namespace simcuda
