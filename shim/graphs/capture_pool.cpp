#include "shim/graphs/capture_pool.h"

#include <algorithm>

#include "shim/decode/entry.h"
#include "shim/probe/device_reader.h"

namespace nimble::shim {

namespace {

// As pools of the driver align; and what is asked of the driver at a time, at least.
constexpr std::uint64_t kAlignment = 512, kChunk = std::uint64_t{32} << 20;

constexpr std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::optional<CapturePool::Block> CapturePool::allocate(std::uint64_t id, std::uint64_t size) {
  if (size == 0 || size > ~std::uint64_t{0} - kChunk) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Capture& capture = captures_[id];
  const std::uint64_t bytes = aligned(size);
  auto chunk = std::find_if(capture.chunks.begin(), capture.chunks.end(),
                            [&](const Chunk& one) { return one.size - one.used >= bytes; });
  if (chunk == capture.chunks.end()) {
    const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
    const RelaxedCaptures relaxed(context_);
    Chunk added;
    CUdeviceptr base = 0;
    // Where memory is short, as much as is needed.
    for (const std::uint64_t asked : {std::max(bytes, kChunk), bytes}) {
      added.size = asked;
      if (get && get(&base, asked) == CUDA_SUCCESS) break;
      base = 0;
    }
    if (!base) return std::nullopt;
    added.base = base;
    capture.context = current_context();
    capture.chunks.push_back(added);
    chunk = std::prev(capture.chunks.end());
  }
  const Block block{chunk->base + chunk->used, size};
  chunk->used += bytes;
  capture.blocks[block.address] = size;
  capture.live.insert(block.address);
  return block;
}

bool CapturePool::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const auto& one) { return one.second.blocks.contains(address); });
}

bool CapturePool::release(std::uint64_t address, std::vector<Block>& gone) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    if (capture.live.erase(address) == 0) continue;
    let_go(id, gone);
    return true;
  }
  return false;
}

void CapturePool::ended(std::uint64_t id, CUgraph graph, std::vector<Block>& gone) {
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

void CapturePool::destroyed(CUgraph graph, std::vector<Block>& gone) {
  const std::lock_guard lock(mutex_);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    Capture& capture = (at++)->second;
    if (!capture.ended || capture.graph != graph) continue;
    capture.graph = nullptr;
    let_go(id, gone);
  }
}

void CapturePool::destroyed(CUgraphExec exec, std::vector<Block>& gone) {
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

std::uint64_t CapturePool::bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [id, capture] : captures_)
    for (const Chunk& chunk : capture.chunks) sum += chunk.size;
  return sum;
}

// Releases what the capture has, once nobody can use it any more. The driver waits until the GPU is done with it.
void CapturePool::let_go(std::uint64_t id, std::vector<Block>& gone) {
  const auto found = captures_.find(id);
  const Capture& capture = found->second;
  if (!capture.ended || capture.graph || capture.shared || !capture.execs.empty() || !capture.live.empty()) return;
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context_.driver_symbol("cuMemFree_v2"));
  const RelaxedCaptures relaxed(context_);
  for (const Chunk& chunk : capture.chunks)
    if (free) free(chunk.base);
  for (const auto& [address, size] : capture.blocks) gone.push_back({address, size});
  captures_.erase(found);
}

}  // namespace nimble::shim
