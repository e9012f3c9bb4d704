#include "shim/rewrite/pool/capture_slots.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace nimble::shim {

void CaptureSlots::ask_for(Serve serve, std::shared_ptr<const CapturePlan> plan) {
  asked_for_ = true;
  serve_ = serve;
  plan_ = std::move(plan);
}

bool CaptureSlots::lies_in(const CaptureHome& home) {
  if (!home_) home_ = home;
  if (home_ == home) return true;
  kept_to_plan_ = false;
  return false;
}

bool CaptureSlots::serves_apart(std::uint64_t bytes) const {
  if (serve_ == Serve::again) return false;
  if (!plan_) return true;
  const std::vector<CapturePlan::Allocation>& all = plan_->allocations;
  return kept_to_plan_ && allocations_ < all.size() && all[allocations_].size == bytes;
}

std::optional<std::uint64_t> CaptureSlots::lacks_block() const {
  const bool lacks = plan_ && kept_to_plan_ && !block_.base && plan_->bytes != 0;
  return lacks ? std::optional(plan_->bytes) : std::nullopt;
}

void CaptureSlots::add_block(const MemoryChunk& chunk) {
  // Another thread of the same capture may have set it meanwhile.
  if (block_.base && chunk.base) chunks_.push_back(chunk);
  if (!block_.base) block_ = {chunk.base, plan_->bytes, plan_->bytes};
  kept_to_plan_ = kept_to_plan_ && block_.base;
}

std::optional<MemorySlot> CaptureSlots::use_again(std::uint64_t stream, std::uint64_t size, std::uint64_t asked) {
  std::optional<MemorySlot> slot;
  if (plan_) slot = planned(stream, asked);
  if (!slot && serve_ == Serve::again) slot = released(stream, size);
  return slot;
}

// The most recently released one of this size or somewhat larger.
std::optional<MemorySlot> CaptureSlots::released(std::uint64_t stream, std::uint64_t size) {
  for (auto at = released_.lower_bound({stream, size});
       at != released_.end() && at->first.stream == stream && at->first.size <= 2 * size; ++at) {
    if (at->second.empty()) continue;
    const MemorySlot slot{at->second.back(), at->first.size, true};
    at->second.pop_back();
    return slot;
  }
  return std::nullopt;
}

// Its place in the plan's block. Once an allocation deviates from the plan, all later ones do.
std::optional<MemorySlot> CaptureSlots::planned(std::uint64_t stream, std::uint64_t size) {
  const std::vector<CapturePlan::Allocation>& all = plan_->allocations;
  kept_to_plan_ = kept_to_plan_ && allocations_ < all.size() && all[allocations_].size == size;
  if (!kept_to_plan_ || !all[allocations_].offset) return std::nullopt;
  if (stream_ == 0) stream_ = stream;
  const std::uint64_t address = block_.base + *all[allocations_].offset;
  // The program still has memory there: it releases it later than the first time.
  const auto after = live_.lower_bound(address);
  const bool meets = (after != live_.end() && after->first < address + size) ||
                     (after != live_.begin() && std::prev(after)->first + std::prev(after)->second > address);
  kept_to_plan_ = stream_ == stream && !meets;
  if (!kept_to_plan_) return std::nullopt;
  std::uint64_t& known = slots_[address];
  const MemorySlot slot{address, size, known != 0};
  known = std::max(known, size);
  return slot;
}

std::optional<MemorySlot> CaptureSlots::take(std::uint64_t size, const FormerMemory& former) {
  for (MemoryChunk& chunk : chunks_) {
    const std::optional<std::uint64_t> at = former.place_in(chunk, size);
    if (!at) continue;
    chunk.used = *at + size;
    slots_[chunk.base + *at] = size;
    return MemorySlot{chunk.base + *at, size, false};
  }
  return std::nullopt;
}

void CaptureSlots::allocated(const std::optional<MemorySlot>& slot, std::size_t nodes, std::uint64_t asked) {
  ++allocations_;
  if (!slot) {
    kept_to_plan_ = false;
    return;
  }
  live_[slot->address] = asked;
  events_.push_back({nodes, false, slot->address, asked});
}

bool CaptureSlots::holds(std::uint64_t address) const {
  return block_.holds(address) || std::ranges::any_of(chunks_, [&](const auto& chunk) { return chunk.holds(address); });
}

bool CaptureSlots::release(std::uint64_t address, std::uint64_t stream, std::optional<std::size_t> nodes) {
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  if (nodes) {
    events_.push_back({*nodes, true, address, found->second});
    if (serve_ == Serve::again) released_[{stream, slots_[address]}].push_back(address);
    // The next allocation in its place would not be ordered after this.
    if (plan_ && stream != stream_) kept_to_plan_ = false;
  }
  live_.erase(found);
  return true;
}

void CaptureSlots::forget_released(std::uint64_t stream) {
  std::erase_if(released_, [&](const auto& one) { return one.first.stream == stream; });
}

void CaptureSlots::unordered(std::uint64_t stream) {
  forget_released(stream);
  kept_to_plan_ = false;
}

void CaptureSlots::stream_ended(std::uint64_t stream) {
  forget_released(stream);
  if (stream != 0 && stream_ == stream) kept_to_plan_ = false;  // 0: none yet
}

CaptureMemory::Kind CaptureSlots::kind() const {
  using Kind = CaptureMemory::Kind;
  if (serve_ == Serve::again) return Kind::again;
  if (serve_ == Serve::once) return Kind::once;
  const bool whole = kept_to_plan_ && allocations_ == plan_->allocations.size();
  const std::map<std::uint64_t, std::uint64_t> there = lasting();
  const auto in_block = [&](const auto& one) { return block_.holds(one.first); };
  return whole && std::none_of(there.begin(), there.end(), in_block) ? Kind::once : Kind::broken;
}

std::map<std::uint64_t, std::uint64_t> CaptureSlots::lasting() const {
  std::map<std::uint64_t, std::uint64_t> there;
  for (const CaptureMemory::Event& event : events_)
    event.released ? void(there.erase(event.address)) : void(there[event.address] = event.size);
  return there;
}

GraphHeap CaptureSlots::heap() const {
  GraphHeap heap;
  for (const CaptureMemory::Event& event : events_)
    event.released ? heap.release(event.address) : heap.allocate(event.address, event.size);
  return heap;
}

void CaptureSlots::tell(CaptureMemory& memory) const {
  memory.events.insert(memory.events.end(), events_.begin(), events_.end());
  for (const auto& [address, size] : lasting()) memory.lasting.push_back(address);
  if (block_.base) memory.blocks.push_back({block_.base, block_.size});
}

FormerMemory::Left CaptureSlots::leave(bool ran) {
  FormerMemory::Left left;
  left.home = home_.value_or(CaptureHome{});
  left.ran = ran;
  for (const auto& [address, size] : live_) left.abandoned.push_back(address);
  left.chunks = std::move(chunks_);
  left.slots = std::move(slots_);
  if (block_.base) {
    left.chunks.push_back(block_);
    left.slots.try_emplace(block_.base, block_.size);
  }
  return left;
}

}  // namespace nimble::shim
