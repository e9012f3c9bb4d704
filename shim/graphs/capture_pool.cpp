#include "shim/graphs/capture_pool.h"

#include <algorithm>
#include <bit>
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
  const std::lock_guard lock(mutex_);
  Capture& capture = captures_[id];
  capture.serve = serve;
  capture.plan = std::move(plan);
  capture.context = current_context();
}

std::uint64_t CapturePool::memory(Capture& capture, std::uint64_t bytes) const {
  const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
  const RelaxedCaptures relaxed(context_);
  CUdeviceptr base = 0;
  if (!get || get(&base, bytes) != CUDA_SUCCESS) return 0;
  if (!capture.context) capture.context = current_context();
  return base;
}

// The one that was released last, of this size or somewhat larger.
std::optional<CapturePool::Slot> CapturePool::use_again(Capture& capture, std::uint64_t stream,
                                                        std::uint64_t size) const {
  for (auto at = capture.released.lower_bound({stream, size});
       at != capture.released.end() && at->first.stream == stream && at->first.size <= 2 * size; ++at) {
    if (at->second.empty()) continue;
    const Slot slot{at->second.back(), at->first.size, true};
    at->second.pop_back();
    return slot;
  }
  return std::nullopt;
}

// Its place by the plan. Once an allocation is not as planned, none is any more.
std::optional<CapturePool::Slot> CapturePool::planned(Capture& capture, std::uint64_t size) const {
  const std::size_t index = capture.allocations;
  const CapturePlan& plan = *capture.plan;
  if (index >= plan.allocations.size() || plan.allocations[index].size != size) {
    capture.plan.reset();
    return std::nullopt;
  }
  const std::optional<std::uint64_t> offset = plan.allocations[index].offset;
  if (!offset) return std::nullopt;
  if (!capture.block.base) {
    capture.block = {memory(capture, plan.bytes), plan.bytes, plan.bytes};
    if (!capture.block.base) capture.plan.reset();
  }
  if (!capture.plan) return std::nullopt;
  const std::uint64_t address = capture.block.base + *offset;
  return Slot{address, size, !capture.slots.emplace(address, size).second};
}

std::optional<CapturePool::Slot> CapturePool::take(Capture& capture, std::uint64_t size) const {
  auto chunk = std::find_if(capture.chunks.begin(), capture.chunks.end(),
                            [&](const Chunk& one) { return one.size - one.used >= size; });
  if (chunk == capture.chunks.end()) {
    Chunk added;
    // Where memory is short, as much as is needed.
    for (const std::uint64_t bytes : {std::max(size, kChunk), size}) {
      added.size = bytes;
      if (!added.base) added.base = memory(capture, bytes);
      if (added.base) break;
    }
    if (!added.base) return std::nullopt;
    capture.chunks.push_back(added);
    chunk = std::prev(capture.chunks.end());
  }
  const Slot slot{chunk->base + chunk->used, size, false};
  chunk->used += size;
  capture.slots[slot.address] = size;
  return slot;
}

std::optional<CapturePool::Slot> CapturePool::allocate(std::uint64_t id, std::uint64_t stream, std::size_t nodes,
                                                       std::uint64_t asked) {
  if (asked == 0 || asked > std::uint64_t{1} << 62) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Capture& capture = captures_[id];
  const std::uint64_t size = slot_size(asked);
  std::optional<Slot> slot;
  if (capture.plan) slot = planned(capture, asked);
  if (capture.serve == Serve::again) slot = use_again(capture, stream, size);
  if (!slot) slot = take(capture, size);
  if (!slot) return std::nullopt;
  ++capture.allocations;
  capture.live[slot->address] = asked;
  capture.events.push_back({nodes, false, slot->address, asked});
  return slot;
}

bool CapturePool::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const auto& one) { return one.second.slots.contains(address); });
}

bool CapturePool::release(std::uint64_t address, std::uint64_t stream, std::optional<std::size_t> nodes,
                          std::vector<Slot>& gone) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    const auto found = capture.live.find(address);
    if (found == capture.live.end()) continue;
    if (nodes && !capture.ended) {
      capture.events.push_back({*nodes, true, address, found->second});
      if (capture.serve == Serve::again) capture.released[{stream, capture.slots[address]}].push_back(address);
    }
    capture.live.erase(found);
    let_go(id, gone);
    return true;
  }
  return false;
}

bool CapturePool::is_whole(const Capture& capture) {
  return capture.plan && capture.allocations == capture.plan->allocations.size();
}

std::optional<CaptureMemory> CapturePool::memory_of(CUgraph graph) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, capture] : captures_) {
    if (!capture.ended || capture.graph != graph || capture.events.empty()) continue;
    CaptureMemory result;
    result.kind = capture.serve == Serve::again                           ? CaptureMemory::Kind::again
                  : capture.serve == Serve::planned && !is_whole(capture) ? CaptureMemory::Kind::broken
                                                                          : CaptureMemory::Kind::once;
    result.events = capture.events;
    result.block = capture.block.base;
    result.block_bytes = capture.block.size;
    std::set<std::uint64_t> there;
    for (const CaptureMemory::Event& event : capture.events)
      event.released ? void(there.erase(event.address)) : void(there.insert(event.address));
    result.lasting.assign(there.begin(), there.end());
    return result;
  }
  return std::nullopt;
}

void CapturePool::ended(std::uint64_t id, CUgraph graph, std::vector<Slot>& gone) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  if (found == captures_.end()) return;
  found->second.ended = true;
  found->second.graph = graph;
  let_go(id, gone);
}

void CapturePool::instantiated(CUgraph graph, CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_)
    if (capture.ended && capture.graph == graph) capture.execs.insert(exec);
}

void CapturePool::destroyed(CUgraph graph, std::vector<Slot>& gone) {
  const std::lock_guard lock(mutex_);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    Capture& capture = (at++)->second;
    if (!capture.ended || capture.graph != graph) continue;
    capture.graph = nullptr;
    let_go(id, gone);
  }
}

void CapturePool::destroyed(CUgraphExec exec, std::vector<Slot>& gone) {
  const std::lock_guard lock(mutex_);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    if ((at++)->second.execs.erase(exec)) let_go(id, gone);
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
}

// Releases what the capture has, once nobody can use it any more. The driver waits until the GPU is done with it.
void CapturePool::let_go(std::uint64_t id, std::vector<Slot>& gone) {
  const auto found = captures_.find(id);
  const Capture& capture = found->second;
  if (!capture.ended || capture.graph || capture.shared || !capture.execs.empty() || !capture.live.empty()) return;
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context_.driver_symbol("cuMemFree_v2"));
  const RelaxedCaptures relaxed(context_);
  for (const Chunk& chunk : capture.chunks)
    if (free) free(chunk.base);
  if (free && capture.block.base) free(capture.block.base);
  for (const auto& [address, size] : capture.slots) gone.push_back({address, size, false});
  captures_.erase(found);
}

}  // namespace nimble::shim
