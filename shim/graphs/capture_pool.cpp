#include "shim/graphs/capture_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "shim/decode/entry.h"
#include "shim/probe/device_reader.h"

namespace nimble::shim {

namespace {

// As pools of the driver align; and what is asked of the driver at a time, at least.
constexpr std::uint64_t kAlignment = 512, kChunk = std::uint64_t{8} << 20;

// Slots have one of eight sizes between a power of two and the next, so that most allocations find one that fits.
std::uint64_t slot_size(std::uint64_t size) {
  const std::uint64_t step = std::max(std::bit_floor(size) / 8, kAlignment);
  return (size + step - 1) / step * step;
}

}  // namespace

void CapturePool::began(std::uint64_t id, Serve serve, std::shared_ptr<const CapturePlan> plan) {
  CUcontext const context = current_context();
  const std::lock_guard lock(mutex_);
  Capture& capture = captures_[id];
  capture.serve = serve;
  capture.plan = std::move(plan);
  capture.context = context;
}

std::uint64_t CapturePool::ask_driver(std::uint64_t bytes) const {
  const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
  const RelaxedCaptures relaxed(context_);
  CUdeviceptr base = 0;
  return get && get(&base, bytes) == CUDA_SUCCESS ? base : 0;
}

// The one that was released last, of this size or somewhat larger.
std::optional<CapturePool::Slot> CapturePool::use_again(Capture& capture, std::uint64_t stream, std::uint64_t size) {
  for (auto at = capture.released.lower_bound({stream, size});
       at != capture.released.end() && at->first.stream == stream && at->first.size <= 2 * size; ++at) {
    if (at->second.empty()) continue;
    const Slot slot{at->second.back(), at->first.size, true};
    at->second.pop_back();
    return slot;
  }
  return std::nullopt;
}

// Its place by the plan, whose block is there. Once an allocation is not as planned, none is any more.
std::optional<CapturePool::Slot> CapturePool::planned(Capture& capture, std::uint64_t stream, std::uint64_t size) {
  const std::vector<CapturePlan::Allocation>& all = capture.plan->allocations;
  const std::size_t index = capture.allocations;
  capture.kept_to_plan = capture.kept_to_plan && index < all.size() && all[index].size == size;
  if (!capture.kept_to_plan || !all[index].offset) return std::nullopt;
  if (capture.stream == 0) capture.stream = stream;
  const std::uint64_t address = capture.block.base + *all[index].offset;
  // What the program has there still it releases later than it did the first time.
  auto behind = capture.live.lower_bound(address);
  const bool meets = (behind != capture.live.end() && behind->first < address + size) ||
                     (behind != capture.live.begin() && std::prev(behind)->first + std::prev(behind)->second > address);
  capture.kept_to_plan = capture.stream == stream && !meets;
  if (!capture.kept_to_plan) return std::nullopt;
  std::uint64_t& known = capture.slots[address];
  const Slot slot{address, size, known != 0};
  known = std::max(known, size);
  return slot;
}

std::optional<CapturePool::Slot> CapturePool::take(Capture& capture, std::uint64_t size) {
  const auto chunk = std::find_if(capture.chunks.begin(), capture.chunks.end(),
                                  [&](const Chunk& one) { return one.size - one.used >= size; });
  if (chunk == capture.chunks.end()) return std::nullopt;
  const Slot slot{chunk->base + chunk->used, size, false};
  chunk->used += size;
  capture.slots[slot.address] = size;
  return slot;
}

std::optional<CapturePool::Slot> CapturePool::allocate(std::uint64_t id, std::uint64_t stream, std::size_t nodes,
                                                       std::uint64_t asked) {
  if (asked == 0 || asked > std::uint64_t{1} << 62) return std::nullopt;
  const std::uint64_t size = slot_size(asked);
  CUcontext const context = current_context();
  std::unique_lock lock(mutex_);
  Capture& capture = captures_[id];
  // Without the lock; false where the capture has gone meanwhile, with its context.
  const auto ask = [&](std::uint64_t bytes, std::uint64_t& base) {
    lock.unlock();
    base = ask_driver(bytes);
    lock.lock();
    return captures_.contains(id);
  };
  std::uint64_t base = 0;
  if (!capture.context) capture.context = context;
  if (capture.plan && capture.kept_to_plan && !capture.block.base && capture.plan->bytes != 0) {
    const std::uint64_t bytes = capture.plan->bytes;
    if (!ask(bytes, base)) return std::nullopt;
    // Another thread of the same capture may have been here meanwhile.
    if (capture.block.base && base) capture.chunks.push_back({base, bytes, 0});
    if (!capture.block.base) capture.block = {base, bytes, bytes};
    capture.kept_to_plan = capture.kept_to_plan && capture.block.base;
  }
  std::optional<Slot> slot;
  if (capture.plan) slot = planned(capture, stream, asked);
  if (!slot && capture.serve == Serve::again) slot = use_again(capture, stream, size);
  if (!slot) slot = take(capture, size);
  // Where memory is short, as much as is needed.
  for (const std::uint64_t bytes : {std::max(size, kChunk), size}) {
    if (slot) break;
    if (!ask(bytes, base)) return std::nullopt;
    if (base) capture.chunks.push_back({base, bytes, 0});
    slot = take(capture, size);
  }
  ++capture.allocations;
  if (!slot) {
    capture.kept_to_plan = false;
    return std::nullopt;
  }
  capture.live[slot->address] = asked;
  capture.events.push_back({nodes, false, slot->address, asked});
  return slot;
}

bool CapturePool::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const auto& one) { return one.second.slots.contains(address); });
}

bool CapturePool::release(std::uint64_t address, std::uint64_t stream, std::uint64_t capturing,
                          std::optional<std::size_t> nodes) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    const auto found = capture.live.find(address);
    if (found == capture.live.end()) continue;
    if (nodes && !capture.ended && id == capturing) {
      capture.events.push_back({*nodes, true, address, found->second});
      if (capture.serve == Serve::again) capture.released[{stream, capture.slots[address]}].push_back(address);
      // What comes into its place would not be behind this.
      if (capture.plan && stream != capture.stream) capture.kept_to_plan = false;
    }
    capture.live.erase(found);
    let_go(id);
    return true;
  }
  return false;
}

CaptureMemory::Kind CapturePool::kind_of(const Capture& capture) {
  using Kind = CaptureMemory::Kind;
  if (capture.serve == Serve::again) return Kind::again;
  if (capture.serve == Serve::once) return Kind::once;
  const bool whole = capture.kept_to_plan && capture.allocations == capture.plan->allocations.size();
  std::set<std::uint64_t> there;
  for (const CaptureMemory::Event& event : capture.events)
    event.released ? void(there.erase(event.address)) : void(there.insert(event.address));
  const auto in_block = [&](std::uint64_t address) { return address - capture.block.base < capture.block.size; };
  return whole && std::none_of(there.begin(), there.end(), in_block) ? Kind::once : Kind::broken;
}

std::optional<CaptureMemory> CapturePool::memory_of(CUgraph graph) const {
  const std::lock_guard lock(mutex_);
  std::optional<CaptureMemory> result;
  std::set<std::uint64_t> there;
  for (const auto& [id, capture] : captures_) {
    if (!capture.ended || capture.graph != graph || capture.events.empty()) continue;
    if (result) {
      result->kind = CaptureMemory::Kind::broken;
    } else {
      result.emplace().kind = kind_of(capture);
    }
    for (const CaptureMemory::Event& event : capture.events) {
      result->events.push_back(event);
      event.released ? void(there.erase(event.address)) : void(there.insert(event.address));
    }
    if (capture.block.base) result->blocks.push_back({capture.block.base, capture.block.size});
  }
  if (result) result->lasting.assign(there.begin(), there.end());
  return result;
}

void CapturePool::ended(std::uint64_t id, CUgraph graph) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  if (found == captures_.end()) return;
  found->second.ended = true;
  found->second.graph = graph;
  let_go(id);
}

void CapturePool::instantiated(CUgraph graph, CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_)
    if (capture.ended && capture.graph == graph) capture.execs.insert(exec);
}

void CapturePool::destroyed(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    Capture& capture = (at++)->second;
    if (!capture.ended || capture.graph != graph) continue;
    capture.graph = nullptr;
    let_go(id);
  }
}

void CapturePool::destroyed(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    if ((at++)->second.execs.erase(exec)) let_go(id);
  }
}

void CapturePool::shared(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_)
    if (capture.ended && capture.graph == graph) capture.shared = true;
}

void CapturePool::shared(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_)
    if (capture.execs.contains(exec)) capture.shared = true;
}

void CapturePool::context_ended(CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(captures_, [&](const auto& one) { return !context || one.second.context == context; });
  std::erase_if(retired_, [&](const Retired& one) { return !context || one.context == context; });
}

// Retires what the capture has, once nobody can use it any more.
void CapturePool::let_go(std::uint64_t id) {
  const auto found = captures_.find(id);
  const Capture& capture = found->second;
  if (!capture.ended || capture.graph || capture.shared || !capture.execs.empty() || !capture.live.empty()) return;
  Retired retired{capture.context, capture.chunks, {}};
  if (capture.block.base) retired.chunks.push_back(capture.block);
  for (const auto& [address, size] : capture.slots) retired.slots.push_back({address, size, false});
  if (!retired.chunks.empty()) {
    retired_.push_back(std::move(retired));
    any_retired_.store(true, std::memory_order_relaxed);
  }
  captures_.erase(found);
}

std::vector<CapturePool::Slot> CapturePool::sweep() {
  const CUcontext context = current_context();
  std::vector<Retired> mine;
  {
    const std::lock_guard lock(mutex_);
    const auto others =
        std::partition(retired_.begin(), retired_.end(), [&](const Retired& one) { return one.context != context; });
    mine.assign(std::make_move_iterator(others), std::make_move_iterator(retired_.end()));
    retired_.erase(others, retired_.end());
    any_retired_.store(!retired_.empty(), std::memory_order_relaxed);
  }
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context_.driver_symbol("cuMemFree_v2"));
  const RelaxedCaptures relaxed(context_);
  std::vector<Slot> slots;
  for (const Retired& one : mine) {
    for (const Chunk& chunk : one.chunks)
      if (free) free(chunk.base);
    slots.insert(slots.end(), one.slots.begin(), one.slots.end());
  }
  return slots;
}

}  // namespace nimble::shim
