#include "shim/rewrite/pool/former_memory.h"

#include <algorithm>
#include <utility>

#include "shim/state/contexts.h"

namespace nimble::shim {

bool FormerMemory::has_retired_in(CUcontext context) const {
  if (!has_retired()) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(retired_, [&](const Retired& one) { return one.home.context == context; });
}

std::vector<MemorySlot> FormerMemory::sweep(std::uint64_t first, const Going& going) {
  const CUcontext context = current_context();
  std::vector<MemorySlot> slots;
  std::vector<MemoryChunk> chunks;
  std::vector<Spare> spare;
  {
    const std::lock_guard lock(mutex_);
    const auto goes = [&](const Retired& one) { return one.home.context == context && one.moment < first; };
    for (const Retired& one : retired_) {
      if (!goes(one)) continue;
      for (const auto& [address, size] : one.slots) slots.push_back({address, size, false});
      for (const MemoryChunk& chunk : one.chunks) {
        if (is_abandoned(chunk)) {
          spare.push_back({one.home, {chunk.base, chunk.size, 0}, true});
        } else {
          chunks.push_back(chunk);
        }
      }
    }
    std::erase_if(retired_, goes);
    any_retired_.store(!retired_.empty(), std::memory_order_relaxed);
  }
  if (going && !slots.empty()) going(slots);
  {
    const std::lock_guard lock(mutex_);
    spare_.insert(spare_.end(), spare.begin(), spare.end());
  }
  source_.release(chunks);
  return slots;
}

std::vector<MemorySlot> FormerMemory::reuse(const Going& going) {
  std::vector<MemorySlot> slots;
  {
    const std::lock_guard lock(mutex_);
    for (Spare& one : spare_) one.told = true;
    any_spare_.store(false, std::memory_order_relaxed);
    slots = std::exchange(spare_slots_, {});
  }
  if (going && !slots.empty()) going(slots);
  const std::lock_guard lock(mutex_);
  for (Spare& one : spare_) one.ready = one.ready || one.told;
  return slots;
}

void FormerMemory::take_over(Left left) {
  const std::lock_guard lock(mutex_);
  abandoned_.insert(left.abandoned.begin(), left.abandoned.end());
  Retired retired{left.home, {}, {}};
  for (const MemoryChunk& chunk : left.chunks) {
    // Memory that the GPU may still be using is waited for first.
    const bool spare = is_abandoned(chunk) && !left.ran;
    if (spare) {
      spare_.push_back({left.home, {chunk.base, chunk.size, 0}});
      any_spare_.store(true, std::memory_order_relaxed);
    } else {
      retired.chunks.push_back(chunk);
    }
    for (auto slot = left.slots.lower_bound(chunk.base); slot != left.slots.end() && chunk.holds(slot->first); ++slot)
      if (spare) {
        spare_slots_.push_back({slot->first, slot->second, false});
      } else {
        retired.slots.insert(*slot);
      }
  }
  retire(std::move(retired));
}

// With the lock held.
void FormerMemory::retire(Retired retired) {
  if (retired.chunks.empty()) return;
  retired.moment = moments_.fetch_add(1, std::memory_order_relaxed);
  retired_.push_back(std::move(retired));
  any_retired_.store(true, std::memory_order_relaxed);
}

std::optional<MemoryChunk> FormerMemory::take_spare(const CaptureHome& home, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const Spare& spare) {
    return spare.ready && spare.home == home && find_place(spare.chunk, size);
  });
  if (found == spare_.end()) return std::nullopt;
  const MemoryChunk chunk = found->chunk;
  spare_.erase(found);
  return chunk;
}

std::optional<std::uint64_t> FormerMemory::find_place(const MemoryChunk& chunk, std::uint64_t size) const {
  std::uint64_t at = chunk.used;
  while (abandoned_.contains(chunk.base + at)) at += kAlignment;
  return at <= chunk.size && chunk.size - at >= size ? std::optional(at) : std::nullopt;
}

std::optional<std::uint64_t> FormerMemory::place_in(const MemoryChunk& chunk, std::uint64_t size) const {
  const std::lock_guard lock(mutex_);
  return find_place(chunk, size);
}

bool FormerMemory::is_abandoned(const MemoryChunk& chunk) const {
  const auto first = abandoned_.lower_bound(chunk.base);
  return first != abandoned_.end() && chunk.holds(*first);
}

// Returns memory that no capture has to the driver, once the program has released everything that began there.
bool FormerMemory::release_abandoned(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (abandoned_.erase(address) == 0) return false;
  for (auto at = spare_.begin(); at != spare_.end();) {
    if (!at->chunk.holds(address) || is_abandoned(at->chunk)) {
      ++at;
      continue;
    }
    retire({at->home, {at->chunk}, {}});
    at = spare_.erase(at);
  }
  return true;
}

bool FormerMemory::has_retired_at(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(retired_, [&](const Retired& one) { return one.slots.contains(address); });
}

bool FormerMemory::begins_at(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return abandoned_.contains(address) ||
         std::ranges::any_of(retired_, [&](const Retired& one) { return one.slots.contains(address); });
}

bool FormerMemory::holds(std::uint64_t address) const {
  const auto is_there = [&](const MemoryChunk& chunk) { return chunk.holds(address); };
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(spare_, [&](const Spare& one) { return is_there(one.chunk); }) ||
         std::ranges::any_of(retired_, [&](const Retired& one) { return std::ranges::any_of(one.chunks, is_there); });
}

std::uint64_t FormerMemory::retired_bytes(CUcontext context) const {
  std::uint64_t bytes = 0;
  const std::lock_guard lock(mutex_);
  for (const Retired& one : retired_)
    if (one.home.context == context) bytes += source_.held(one.chunks);
  return bytes;
}

std::uint64_t FormerMemory::held(CUcontext context) const {
  std::uint64_t bytes = retired_bytes(context);
  const std::lock_guard lock(mutex_);
  for (const Spare& one : spare_)
    if (one.home.context == context) bytes += source_.held({&one.chunk, 1});
  return bytes;
}

void FormerMemory::context_ends(CUcontext context, const std::vector<MemoryChunk>& others) {
  const auto ends = [&](const CaptureHome& home) { return !context || home.context == context; };
  const std::lock_guard lock(mutex_);
  const auto forget = [&](const MemoryChunk& chunk) {
    abandoned_.erase(abandoned_.lower_bound(chunk.base), abandoned_.lower_bound(chunk.base + chunk.size));
  };
  std::ranges::for_each(others, forget);
  for (const Spare& one : spare_)
    if (ends(one.home)) forget(one.chunk);
  for (const Retired& one : retired_)
    if (ends(one.home)) std::ranges::for_each(one.chunks, forget);
  std::erase_if(retired_, [&](const Retired& one) { return ends(one.home); });
  std::erase_if(spare_, [&](const Spare& one) { return ends(one.home); });
}

}  // namespace nimble::shim
