#include "shim/rewrite/pool/chunk_source.h"

#include <chrono>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/patience.h"
#include "shim/state/contexts.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

namespace {

constexpr std::chrono::microseconds kPatience{1'000'000};  // for memory of a pool

}  // namespace

MemoryChunk ChunkSource::get(CaptureHome home, std::uint64_t bytes, std::uint64_t to_share) {
  CUcontext context = home.context;
  const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  const bool other = context != current_context();
  if (!get || (other && (!push || !pop || push(context) != CUDA_SUCCESS))) return {};
  MemoryChunk chunk;
  if (home.pool == 0 && to_share != 0) {
    const Backing::Piece mapped = backing_.get(to_share, home.context);
    chunk = {mapped.address, mapped.bytes, 0};
  }
  CUdeviceptr base = 0;
  if (chunk.base == 0) {
    const RelaxedCaptures relaxed(context_);
    if ((home.pool != 0 ? ask_pool(base, bytes) : get(&base, bytes)) != CUDA_SUCCESS) base = 0;
    chunk = {base, base ? bytes : 0, 0};
  }
  if (other) pop(&context);
  if (chunk.base) widen(chunk);
  return chunk;
}

// Allocates in stream order, on its own stream, and waits for that. cuMemFree accepts such memory, too. The pool may
// give memory that another stream has yet to release: waits for it, but not for ever, since that stream may wait for
// this thread.
CUresult ChunkSource::ask_pool(CUdeviceptr& base, std::uint64_t bytes) const {
  const auto find = [&]<class Function>(Function* function, const char* name) {
    return reinterpret_cast<Function*>(context_.driver_symbol(name));
  };
  const auto create = find(&::cuStreamCreate, "cuStreamCreate");
  const auto destroy = find(&::cuStreamDestroy_v2, "cuStreamDestroy_v2");
  const auto query = find(&::cuStreamQuery, "cuStreamQuery");
  const auto get = find(&::cuMemAllocAsync, "cuMemAllocAsync");
  const auto free = find(&::cuMemFreeAsync, "cuMemFreeAsync");
  if (!create || !destroy || !query || !get || !free) return CUDA_ERROR_NOT_SUPPORTED;
  CUstream stream = nullptr;
  CUresult result = create(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = get(&base, bytes, stream);
  if (result == CUDA_SUCCESS) {
    const NotCancelled not_cancelled;
    Patience patience(kPatience);
    while ((result = query(stream)) == CUDA_ERROR_NOT_READY && patience.sleep(kPatience / 10'000)) {
    }
    if (result != CUDA_SUCCESS) free(base, stream);
  }
  destroy(stream);
  return result;
}

// Before its addresses are known to anyone.
void ChunkSource::widen(const MemoryChunk& chunk) {
  std::uint64_t begin = begin_.load(std::memory_order_relaxed), end = end_.load(std::memory_order_relaxed);
  while (chunk.base < begin && !begin_.compare_exchange_weak(begin, chunk.base, std::memory_order_relaxed)) {
  }
  while (chunk.base + chunk.size > end &&
         !end_.compare_exchange_weak(end, chunk.base + chunk.size, std::memory_order_relaxed)) {
  }
}

void ChunkSource::release(std::span<const MemoryChunk> chunks) {
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context_.driver_symbol("cuMemFree_v2"));
  const RelaxedCaptures relaxed(context_);
  for (const MemoryChunk& chunk : chunks)
    if (!backing_.release(chunk.base) && free) free(chunk.base);
}

std::uint64_t ChunkSource::held(std::span<const MemoryChunk> chunks) const {
  std::uint64_t sum = 0;
  for (const MemoryChunk& chunk : chunks) sum += backing_.held(chunk.base).value_or(chunk.size);
  return sum;
}

}  // namespace nimble::shim
