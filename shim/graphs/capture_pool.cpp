#include "shim/graphs/capture_pool.h"

#include <algorithm>
#include <bit>

#include "shim/decode/entry.h"
#include "shim/probe/device_reader.h"

namespace nimble::shim {

namespace {

// As pools of the driver align; and what is asked of the driver at a time, at least.
constexpr std::uint64_t kAlignment = 512, kChunk = std::uint64_t{32} << 20;
// What the device's cache is taken to hold where the driver does not tell.
constexpr int kCacheBytes = 32 << 20;

// Slots have one of eight sizes between a power of two and the next, so that most allocations find one that fits.
std::uint64_t slot_size(std::uint64_t size) {
  const std::uint64_t step = std::max(std::bit_floor(size) / 8, kAlignment);
  return (size + step - 1) / step * step;
}

}  // namespace

std::uint64_t CapturePool::reuse_from() {
  if (reuse_from_ != 0) return reuse_from_;
  int cache = 0;
  CUdevice device = 0;
  const auto current = reinterpret_cast<decltype(&::cuCtxGetDevice)>(context_.driver_symbol("cuCtxGetDevice"));
  const auto ask = reinterpret_cast<decltype(&::cuDeviceGetAttribute)>(context_.driver_symbol("cuDeviceGetAttribute"));
  if (!ask || !current || current(&device) != CUDA_SUCCESS ||
      ask(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device) != CUDA_SUCCESS || cache <= 0)
    cache = kCacheBytes;
  return reuse_from_ = static_cast<std::uint64_t>(cache) / 2;
}

// Of this size, or somewhat larger.
std::optional<CapturePool::Slot> CapturePool::use_again(Capture& capture, std::uint64_t stream, std::uint64_t size) {
  for (auto at = capture.released.lower_bound({stream, size});
       at != capture.released.end() && at->first.stream == stream && at->first.size <= 2 * size; ++at) {
    if (at->second.empty()) continue;
    const Slot slot{at->second.front(), at->first.size, true};
    at->second.pop_front();
    return slot;
  }
  return std::nullopt;
}

std::optional<CapturePool::Slot> CapturePool::allocate(std::uint64_t id, std::uint64_t stream, std::uint64_t asked) {
  if (asked == 0 || asked > std::uint64_t{1} << 62) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Capture& capture = captures_[id];
  const std::uint64_t size = slot_size(asked);
  if (capture.bytes + size > reuse_from()) {
    if (const std::optional<Slot> slot = use_again(capture, stream, size)) {
      capture.live.insert(slot->address);
      return slot;
    }
  }
  auto chunk = std::find_if(capture.chunks.begin(), capture.chunks.end(),
                            [&](const Chunk& one) { return one.size - one.used >= size; });
  if (chunk == capture.chunks.end()) {
    const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
    const RelaxedCaptures relaxed(context_);
    Chunk added;
    CUdeviceptr base = 0;
    // Where memory is short, as much as is needed.
    for (const std::uint64_t bytes : {std::max(size, kChunk), size}) {
      added.size = bytes;
      if (get && get(&base, bytes) == CUDA_SUCCESS) break;
      base = 0;
    }
    if (!base) return std::nullopt;
    added.base = base;
    capture.context = current_context();
    capture.chunks.push_back(added);
    chunk = std::prev(capture.chunks.end());
  }
  const Slot slot{chunk->base + chunk->used, size, false};
  chunk->used += size;
  capture.bytes += size;
  capture.slots[slot.address] = size;
  capture.live.insert(slot.address);
  return slot;
}

bool CapturePool::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const auto& one) { return one.second.slots.contains(address); });
}

bool CapturePool::release(std::uint64_t address, std::uint64_t stream, std::vector<Slot>& gone) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    if (capture.live.erase(address) == 0) continue;
    // What is released later a launch of the graph writes again.
    if (!capture.ended) capture.released[{stream, capture.slots[address]}].push_back(address);
    let_go(id, gone);
    return true;
  }
  return false;
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
  for (const auto& [address, size] : capture.slots) gone.push_back({address, size, false});
  captures_.erase(found);
}

}  // namespace nimble::shim
