// Allocation and release outside stream order, host memory, and what the API tells about a pointer.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"
#include "tests/simcuda/memory/pool.h"

using namespace simcuda;

namespace simcuda {
namespace {

constexpr std::uint64_t kPitchAlignment = 512;

// A release outside stream order waits for all work of the device, for that may use the memory.
void finish_everything(Call& call) {
  call.driver.engine.finish_all();
  call.driver.clock.wait_until(call.context->all.end_us);
  Driver& d = call.driver;
  if (!d.tracking.on()) return;
  d.tracking.host_saw(call.context->legacy->tail.clock);
  for (CUstream stream : call.context->streams) d.tracking.host_saw(stream->tail.clock);
}

CUresult allocate(Call& call, BlockKind kind, CUdeviceptr* pointer, std::uint64_t bytes) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  Block* block = call.driver.memory.allocate(kind, bytes, bytes, call.context);
  if (block == nullptr) {
    make_room();
    block = call.driver.memory.allocate(kind, bytes, bytes, call.context);
  }
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = block->base;
  return CUDA_SUCCESS;
}

CUresult allocate_host(Call& call, void** pointer, std::size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Block* block =
      call.driver.memory.adopt(BlockKind::kPinned, reinterpret_cast<std::uint64_t>(memory), bytes, call.context);
  block->host_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  *pointer = memory;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

SIM_CALL(cuMemAlloc_v2, kContext, (CUdeviceptr * pointer, size_t bytes), (pointer, bytes)) {
  return allocate(call, BlockKind::kDevice, pointer, bytes);
}

SIM_CALL(cuMemAllocManaged, kContext, (CUdeviceptr * pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return allocate(call, BlockKind::kManaged, pointer, bytes);
}

SIM_CALL(cuMemAllocPitch_v2, kContext,
         (CUdeviceptr * pointer, size_t* pitch, size_t width, size_t height, unsigned element_bytes),
         (pointer, pitch, width, height, element_bytes)) {
  if (pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  if (row < width || height > Memory::kTotal / row) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate(call, BlockKind::kDevice, pointer, row * height);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

SIM_CALL(cuMemFree_v2, kContext, (CUdeviceptr pointer), (pointer)) {
  if (pointer == 0) return CUDA_SUCCESS;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  Block* block = call.driver.memory.find(pointer);
  if (block == nullptr || block->base != pointer || !block->allocated) return CUDA_ERROR_INVALID_VALUE;
  if (block->kind != BlockKind::kDevice && block->kind != BlockKind::kManaged && block->kind != BlockKind::kPool &&
      block->kind != BlockKind::kGraph) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // For memory from a pool the driver assumes that all accesses are over (H200, 580.159: it does not wait).
  if (block->kind == BlockKind::kPool) {
    return_to_pool(block, nullptr, {});
    return call.context->fault;
  }
  finish_everything(call);
  if (block->kind == BlockKind::kGraph) {
    if (!block->outstanding) return CUDA_ERROR_INVALID_VALUE;
    block->outstanding = block->live = false;
    call.driver.outstanding.erase(block);
  } else {
    call.driver.memory.release(block);
  }
  return call.context->fault;
}

SIM_CALL(cuMemAllocHost_v2, kContext, (void** pointer, size_t bytes), (pointer, bytes)) {
  return allocate_host(call, pointer, bytes, 0);
}
SIM_CALL(cuMemHostAlloc, kContext, (void** pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  return allocate_host(call, pointer, bytes, flags);
}

SIM_CALL(cuMemFreeHost, kContext, (void* pointer), (pointer)) {
  if (pointer == nullptr) return CUDA_SUCCESS;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  Block* block = call.driver.memory.find(reinterpret_cast<std::uint64_t>(pointer));
  if (block == nullptr || block->kind != BlockKind::kPinned ||
      block->base != reinterpret_cast<std::uint64_t>(pointer)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  finish_everything(call);
  munmap(pointer, block->bytes);
  call.driver.memory.release(block);
  return call.context->fault;
}

SIM_CALL(cuMemHostRegister_v2, kContext, (void* pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                              CU_MEMHOSTREGISTER_READ_ONLY;
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = reinterpret_cast<std::uint64_t>(pointer);
  Memory& memory = call.driver.memory;
  const auto next = memory.blocks().lower_bound(base);
  if (memory.find(base) != nullptr || (next != memory.blocks().end() && next->first < base + bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  memory.adopt(BlockKind::kRegistered, base, bytes, call.context)->host_flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemHostUnregister, kContext, (void* pointer), (pointer)) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  Block* block = call.driver.memory.find(address);
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Block* known = call.driver.memory.find_known(address);
  if (known != nullptr && (known->kind == BlockKind::kDevice || known->kind == BlockKind::kPool ||
                           known->kind == BlockKind::kGraph || known->kind == BlockKind::kMapped))
    return CUDA_ERROR_INVALID_VALUE;
  if (block == nullptr || block->kind != BlockKind::kRegistered || block->base != address) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  finish_everything(call);
  call.driver.memory.release(block);
  return call.context->fault;
}

SIM_CALL(cuMemHostGetDevicePointer_v2, kContext, (CUdeviceptr * device, void* host, unsigned flags),
         (device, host, flags)) {
  if (device == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Block* block = call.driver.memory.find_allocated(reinterpret_cast<std::uint64_t>(host));
  if (block == nullptr || !block->on_host()) return CUDA_ERROR_INVALID_VALUE;
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemHostGetFlags, kContext, (unsigned* flags, void* host), (flags, host)) {
  const Block* block = call.driver.memory.find_allocated(reinterpret_cast<std::uint64_t>(host));
  if (flags == nullptr || block == nullptr || !block->on_host()) return CUDA_ERROR_INVALID_VALUE;
  *flags = block->host_flags;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetAddressRange_v2, kContext, (CUdeviceptr * base, size_t* bytes, CUdeviceptr pointer),
         (base, bytes, pointer)) {
  const Block* block = call.driver.memory.find_known(pointer);
  if (block == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = block->base;
  if (bytes != nullptr) *bytes = block->bytes;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetInfo_v2, kContext, (size_t * free, size_t* total), (free, total)) {
  if (free != nullptr) *free = call.driver.memory.left();
  if (total != nullptr) *total = call.driver.memory.total();
  return CUDA_SUCCESS;
}

// Managed memory is where it is: advice about it changes nothing here.
SIM_CALL(cuMemAdvise_v2, kContext, (CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location),
         (pointer, bytes, advice, location)) {
  const Block* block = call.driver.memory.find_allocated(pointer);
  return block != nullptr && block->kind == BlockKind::kManaged ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuMemRangeGetAttribute, kContext,
         (void* data, size_t bytes, CUmem_range_attribute attribute, CUdeviceptr pointer, size_t count),
         (data, bytes, attribute, pointer, count)) {
  const Block* block = call.driver.memory.find_known(pointer);
  if (data == nullptr || count == 0 || block == nullptr || block->kind != BlockKind::kManaged) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute != CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY || bytes != 4) return CUDA_ERROR_NOT_SUPPORTED;
  *static_cast<int*>(data) = 0;
  return CUDA_SUCCESS;
}
