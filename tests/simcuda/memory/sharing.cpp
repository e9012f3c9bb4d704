// Handles by which other processes and devices reach memory, pools and events. There is no other process here: what one
// opens is memory of its own, of the size of that which the handle stands for, and an event that has happened.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"
#include "tests/simcuda/memory/pool.h"
#include "tests/simcuda/memory/vmm.h"

using namespace simcuda;

namespace {

constexpr std::uint64_t kPage = 4096;  // of the host: what a range handle is made of

// A new anonymous file of this size, for a descriptor that the program owns; negative where there is none.
int make_file(const char* name, std::uint64_t bytes) {
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    return -1;
  }
  return file;
}

template <class Handle, class Value>
void put(Handle& handle, const Value& value) {
  static_assert(sizeof value <= sizeof handle);
  std::memset(&handle, 0, sizeof handle);
  std::memcpy(&handle, &value, sizeof value);
}

template <class Value, class Handle>
Value get(const Handle& handle) {
  Value value{};
  std::memcpy(&value, &handle, sizeof value);
  return value;
}

}  // namespace

// ---- memory ----

// Who opens the handle gets the whole allocation: only memory of cuMemAlloc has one.
SIM_CALL(cuIpcGetMemHandle, kContext, (CUipcMemHandle * handle, CUdeviceptr pointer), (handle, pointer)) {
  const Block* block = call.driver.memory.find_known(pointer);
  if (handle == nullptr || block == nullptr || block->kind != BlockKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  put(*handle, block->bytes);
  return CUDA_SUCCESS;
}

SIM_CALL(cuIpcOpenMemHandle_v2, kContext, (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags),
         (pointer, handle, flags)) {
  const auto bytes = get<std::uint64_t>(handle);
  if (pointer == nullptr || bytes == 0 || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  const Block* block = call.driver.memory.allocate(BlockKind::kOpened, bytes, bytes, call.context);
  if (block == nullptr) return CUDA_ERROR_MAP_FAILED;
  *pointer = block->base;
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, kContext,
          (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags), (pointer, handle, flags))

SIM_CALL(cuIpcCloseMemHandle, kContext, (CUdeviceptr pointer), (pointer)) {
  Block* block = call.driver.memory.find(pointer);
  if (block == nullptr || block->kind != BlockKind::kOpened || block->base != pointer) return CUDA_ERROR_INVALID_VALUE;
  call.driver.engine.finish_all();
  call.driver.memory.release(block);
  return call.context->fault;
}

// Other devices reach whole pages of the host's size, from within an allocation on and as far as the memory behind it
// goes: of pools as well, although the attribute IS_GPU_DIRECT_RDMA_CAPABLE says no, and of graphs if it is as much as
// memory is mapped in (one H200, driver 580.159; on another the same driver refused all of it).
SIM_CALL(cuMemGetHandleForAddressRange, kContext,
         (void* handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type, unsigned long long flags),
         (handle, pointer, bytes, type, flags)) {
  constexpr std::uint64_t kMapping = std::uint64_t{2} << 20;
  const Block* block = call.driver.memory.find_known(pointer);
  if (handle == nullptr || block == nullptr || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || bytes == 0 ||
      bytes % kPage != 0 || pointer % kPage != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool is_of_graph = block->kind == BlockKind::kGraph;
  const bool is_reached = is_of_graph ? bytes >= kMapping
                                      : block->kind == BlockKind::kDevice || block->kind == BlockKind::kMapped ||
                                            block->kind == BlockKind::kPool;
  const std::uint64_t end = (block->base + block->bytes + kMapping - 1) / kMapping * kMapping;
  if (!is_reached || bytes > end - pointer) return CUDA_ERROR_INVALID_VALUE;
  const int file = make_file("simcuda range", bytes);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = file;
  return CUDA_SUCCESS;
}

// ---- events ----

SIM_CALL(cuIpcGetEventHandle, kContext, (CUipcEventHandle * handle, CUevent event), (handle, event)) {
  if (!valid(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (handle == nullptr || (event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_VALUE;
  put(*handle, event->id);
  return CUDA_SUCCESS;
}

SIM_CALL(cuIpcOpenEventHandle, kContext, (CUevent * event, CUipcEventHandle handle), (event, handle)) {
  if (event == nullptr || get<std::uint64_t>(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  *event = call.driver.events.make();
  (*event)->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  (*event)->context = call.context;
  (*event)->id = next_event_id();
  return CUDA_SUCCESS;
}

// ---- pools ----

SIM_CALL(cuMemPoolExportToShareableHandle, kInit,
         (void* handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),
         (handle, pool, type, flags)) {
  if (handle == nullptr || !valid(pool) || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      pool->imported || pool->props.handleTypes != type)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = make_file("simcuda pool", kPage);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = file;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolImportFromShareableHandle, kInit,
         (CUmemoryPool * pool, void* handle, CUmemAllocationHandleType type, unsigned long long flags),
         (pool, handle, type, flags)) {
  struct stat facts {};
  const int file = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
  if (pool == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(file, &facts) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *pool = make_imported_pool();
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolExportPointer, kContext, (CUmemPoolPtrExportData * exported, CUdeviceptr pointer),
         (exported, pointer)) {
  const Block* block = call.driver.memory.find_known(pointer);
  if (exported == nullptr || block == nullptr || block->kind != BlockKind::kPool || block->pool->imported ||
      block->pool->props.handleTypes == CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  put(*exported, block->bytes);
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolImportPointer, kContext, (CUdeviceptr * pointer, CUmemoryPool pool, CUmemPoolPtrExportData* exported),
         (pointer, pool, exported)) {
  if (pointer == nullptr || exported == nullptr || !valid(pool) || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = get<std::uint64_t>(*exported);
  Block* block = bytes != 0 ? call.driver.memory.allocate(BlockKind::kPool, bytes, bytes, call.context) : nullptr;
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  block->pool = pool;
  pool->reserved += block->capacity;
  pool->used += block->bytes;
  *pointer = block->base;
  return CUDA_SUCCESS;
}
