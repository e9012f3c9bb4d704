// Stream-ordered memory. A freed block is kept, and given to the next request of its size: at once on the stream that
// freed it, for what was queued before is before; on another stream once the release has run. So a program that frees
// and allocates the same size on one stream gets the same address again, as from a real pool.
#include "tests/simcuda/memory/pool.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

namespace simcuda {
namespace {

constexpr std::uint64_t kGranularity = 512;

CUmemoryPool make_pool(const CUmemPoolProps& props) {
  CUmemoryPool pool = driver().pools.make();
  pool->props = props;
  pool->attributes[CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = 1;
  pool->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC] = 1;
  pool->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES] = 1;
  pool->attributes[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = 0;
  return pool;
}

CUmemPoolProps device_props() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return props;
}

// A block that this stream may use again, or null.
Block* reuse(CUmemoryPool pool, std::uint64_t capacity, CUstream stream) {
  const auto found = pool->free.find(capacity);
  if (found == pool->free.end()) return nullptr;
  std::vector<Block*>& blocks = found->second;
  const auto take = [&](auto fits) -> Block* {
    const auto at = std::find_if(blocks.rbegin(), blocks.rend(), fits);
    if (at == blocks.rend()) return nullptr;
    Block* block = *at;
    blocks.erase(std::next(at).base());
    return block;
  };
  Block* block = take([&](const Block* b) { return b->freed_stream == stream && b->freed_stream_id == stream->id; });
  if (block == nullptr && pool->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC] != 0) {
    block = take([](const Block* b) { return !b->freed.pending(); });
  }
  return block;
}

void trim(CUmemoryPool pool, std::uint64_t keep) {
  Driver& d = driver();
  for (auto& [capacity, blocks] : pool->free) {
    for (std::size_t i = 0; i < blocks.size() && pool->reserved > keep;) {
      if (blocks[i]->freed.pending()) {
        ++i;
        continue;
      }
      pool->reserved -= blocks[i]->capacity;
      d.tracking.forget(blocks[i]->base, blocks[i]->base + blocks[i]->capacity);
      d.memory.release(blocks[i]);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

CUresult allocate(Call& call, CUdeviceptr* pointer, std::uint64_t bytes, CUmemoryPool pool, CUstream handle) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(pool)) return CUDA_ERROR_INVALID_HANDLE;
  if (pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_stream(stream)) return error;
  if (capturing(stream)) return capture_allocation(stream, bytes, pool->props, pointer);
  if (const CUresult error = forbid_while_capturing(call)) return error;  // as hardware has it (tests/fidelity)
  if (bytes == 0) {
    *pointer = 0;
    return CUDA_SUCCESS;
  }
  if (bytes > Memory::kTotal) return CUDA_ERROR_OUT_OF_MEMORY;
  Driver& d = call.driver;
  const std::uint64_t capacity = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  Block* block = reuse(pool, capacity, stream);
  const bool again = block != nullptr;
  if (!again) {
    if (pool->props.maxSize != 0 && pool->reserved + capacity > pool->props.maxSize) return CUDA_ERROR_OUT_OF_MEMORY;
    block = d.memory.allocate(BlockKind::kPool, bytes, capacity, call.context);
    if (block == nullptr) {
      d.engine.finish_all();
      make_room();
      block = d.memory.allocate(BlockKind::kPool, bytes, capacity, call.context);
    }
    if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    block->live = false;
    block->pool = pool;
    pool->reserved += capacity;
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  }
  Op* op = d.engine.make();
  op->work = make_work(WorkKind::kAlloc, "cuMemAllocAsync");
  op->work.memory = {block, bytes};
  if (again) {
    d.engine.follow(op, {block->freed, block->freed_us, block->freed_clock});
    block->freed_clock.reset();
    block->context = call.context;
    d.memory.renew(block);
  }
  block->allocated = true;
  block->bytes = bytes;
  pool->used += bytes;  // as asked for (H200, 580.159)
  pool->used_high = std::max(pool->used_high, pool->used);
  account(d, WorkKind::kAlloc);
  *pointer = block->base;
  d.engine.submit(op, stream);
  return CUDA_SUCCESS;
}

}  // namespace

void trim_pools(std::uint64_t keep) {
  if (driver().default_pool != nullptr) trim(driver().default_pool, keep);
  if (driver().current_pool != nullptr) trim(driver().current_pool, keep);
}

void make_room() {
  trim_pools(0);
  driver().graph_reserve.trim();
}

void return_to_pool(Block* block, CUstream stream, const Tail& tail) {
  CUmemoryPool pool = block->pool;
  block->allocated = false;
  if (stream == nullptr) block->live = false;
  block->freed = tail.last;
  block->freed_us = tail.end_us;
  block->freed_clock = tail.clock;
  block->freed_stream = stream;
  block->freed_stream_id = stream != nullptr ? stream->id : 0;
  pool->used -= block->bytes;
  pool->free[block->capacity].push_back(block);
}

CUmemoryPool make_imported_pool() {
  CUmemoryPool pool = make_pool(device_props());
  pool->imported = true;
  return pool;
}

CUmemoryPool default_pool() {
  Driver& d = driver();
  if (d.default_pool == nullptr) {
    d.default_pool = make_pool(device_props());
    d.default_pool->is_default = true;
    d.current_pool = d.default_pool;
  }
  return d.default_pool;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL_PTSZ(cuMemAllocAsync, kContext, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
              (pointer, bytes, stream)) {
  default_pool();
  return allocate(call, pointer, bytes, call.driver.current_pool, stream);
}

SIM_CALL_PTSZ(cuMemAllocFromPoolAsync, kContext,
              (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
              (pointer, bytes, pool, stream)) {
  return allocate(call, pointer, bytes, pool, stream);
}

SIM_CALL_PTSZ(cuMemFreeAsync, kContext, (CUdeviceptr pointer, CUstream handle), (pointer, handle)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = check_stream(stream)) return error;
  if (pointer == 0) return CUDA_SUCCESS;
  Block* block = call.driver.memory.find(pointer);
  if (block == nullptr || block->base != pointer || !block->allocated) return CUDA_ERROR_INVALID_VALUE;
  Work work = make_work(WorkKind::kFree, "cuMemFreeAsync");
  work.memory = {block, block->bytes};
  if (capturing(stream)) {
    if (block->kind != BlockKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode node = nullptr;
    const CUresult result = capture_node(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, std::move(work), &node);
    if (result == CUDA_SUCCESS) node->memory = block->graph_memory->shared_from_this();
    return result;
  }
  switch (block->kind) {
    case BlockKind::kPool:
    case BlockKind::kGraph:
    case BlockKind::kDevice:
    case BlockKind::kManaged:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (block->kind == BlockKind::kGraph && !block->outstanding) return CUDA_ERROR_INVALID_VALUE;
  account(call.driver, WorkKind::kFree);
  Op* op = call.driver.engine.make();
  op->work = std::move(work);
  if (block->kind == BlockKind::kGraph) {
    op->keeps = std::move(call.driver.outstanding[block]);
    call.driver.outstanding.erase(block);
    block->outstanding = false;
    call.driver.engine.submit(op, stream);
    return CUDA_SUCCESS;
  }
  block->allocated = false;
  call.driver.engine.submit(op, stream);
  if (block->kind == BlockKind::kPool) {
    return_to_pool(block, stream, stream->tail);
  } else {  // memory of the other kind may be freed in stream order, too: it goes when the work before has ended
    const Tail tail = stream->tail;
    call.driver.engine.finish(tail.last);
    call.driver.memory.release(block);
  }
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetDefaultMemPool, kInit, (CUmemoryPool * pool, CUdevice device), (pool, device)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = default_pool();
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetMemPool, kInit, (CUmemoryPool * pool, CUdevice device), (pool, device)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  default_pool();
  *pool = call.driver.current_pool;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceSetMemPool, kInit, (CUdevice device, CUmemoryPool pool), (device, pool)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (!valid(pool)) return CUDA_ERROR_INVALID_VALUE;
  default_pool();
  call.driver.current_pool = pool;
  return CUDA_SUCCESS;
}

// The host has pools, too, and so has memory that moves between the two.
static CUresult pool_of(CUmemoryPool* pool, const CUmemLocation* location, CUmemAllocationType type) {
  if (pool == nullptr || location == nullptr || location->id != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    *pool = default_pool();
    return CUDA_SUCCESS;
  }
  static auto& pools = *new std::map<std::pair<int, int>, CUmemoryPool>();
  CUmemoryPool& its = pools[{type, location->type}];
  if (its == nullptr) {
    CUmemPoolProps props{};
    props.allocType = type;
    props.location = *location;
    its = make_pool(props);
    its->is_default = true;
  }
  *pool = its;
  return CUDA_SUCCESS;
}
SIM_CALL(cuMemGetDefaultMemPool, kInit, (CUmemoryPool * pool, CUmemLocation* location, CUmemAllocationType type),
         (pool, location, type)) {
  return pool_of(pool, location, type);
}
SIM_CALL(cuMemGetMemPool, kInit, (CUmemoryPool * pool, CUmemLocation* location, CUmemAllocationType type),
         (pool, location, type)) {
  return pool_of(pool, location, type);
}

SIM_CALL(cuMemPoolCreate, kInit, (CUmemoryPool * pool, const CUmemPoolProps* props), (pool, props)) {
  if (pool == nullptr || props == nullptr || props->location.id != 0 ||
      (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE && props->location.type != CU_MEM_LOCATION_TYPE_HOST) ||
      (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED && props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE && props->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  *pool = make_pool(*props);
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolDestroy, kInit, (CUmemoryPool pool), (pool)) {
  if (!valid(pool) || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = call.driver;
  d.engine.finish_all();
  if (d.current_pool == pool) d.current_pool = default_pool();
  trim(pool, 0);
  // What is still allocated goes back to the device when it is freed: it belongs to the default pool from here on.
  for (auto& entry : d.memory.blocks()) {
    Block& block = entry.second;
    if (block.pool != pool) continue;
    block.pool = default_pool();
    block.pool->reserved += block.capacity;
    block.pool->used += block.bytes;
  }
  d.pools.release(pool);
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolTrimTo, kInit, (CUmemoryPool pool, size_t keep), (pool, keep)) {
  if (!valid(pool)) return CUDA_ERROR_INVALID_VALUE;
  trim(pool, keep);
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolGetAttribute, kInit, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value),
         (pool, attribute, value)) {
  if (!valid(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = static_cast<int>(pool->attributes[attribute]);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<cuuint64_t*>(value) = pool->attributes[attribute];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = pool->reserved_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = pool->used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_CALL(cuMemPoolSetAttribute, kInit, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value),
         (pool, attribute, value)) {
  if (!valid(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->attributes[attribute] = *static_cast<int*>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->attributes[attribute] = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:  // may only be reset
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->reserved_high = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// There is one device, and it has access.
SIM_CALL(cuMemPoolGetAccess, kInit, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation* location),
         (flags, pool, location)) {
  if (flags == nullptr || !valid(pool) || location == nullptr || location->id != 0) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}
SIM_CALL(cuMemPoolSetAccess, kInit, (CUmemoryPool pool, const CUmemAccessDesc* access, size_t count),
         (pool, access, count)) {
  if (!valid(pool) || (count != 0 && access == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.id != 0 || access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  return CUDA_SUCCESS;
}
