// What the driver knows about a pointer.
#include <array>
#include <cstring>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/memory/vmm.h"

using namespace simcuda;

namespace {

template <typename T>
void put(void* out, T value) {
  *static_cast<T*>(out) = value;
}

// How many bytes an attribute has, so that an unknown pointer can be answered with zeros.
std::size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return 16;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return 4;
    default:
      return 8;
  }
}

// Pools map so much at once (H200, 580.159).
constexpr std::uint64_t kPoolMapping = std::uint64_t{32} << 20;
std::uint64_t mapping(const Block& block) {
  const bool in_order = block.kind == BlockKind::kPool || block.kind == BlockKind::kGraph;
  return in_order ? block.base / kPoolMapping * kPoolMapping : block.base;
}

CUresult get(Call& call, void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Block* block = call.driver.memory.find_known(pointer);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool managed = block->kind == BlockKind::kManaged, pooled = block->kind == BlockKind::kPool;
  const bool in_order = pooled || block->kind == BlockKind::kGraph, plain = block->kind == BlockKind::kDevice;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put(out, in_order ? nullptr : block->context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put<unsigned>(out, block->on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:  // none where the device may not touch it (H200, 580.159)
      if (is_closed(pointer)) return CUDA_ERROR_INVALID_VALUE;
      put(out, pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!block->on_host() && !managed) return CUDA_ERROR_INVALID_VALUE;
      put(out, pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      if (!plain) return CUDA_ERROR_INVALID_VALUE;
      put(out, std::array<std::uint64_t, 2>{block->id, 0});
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put<unsigned>(out, block->synchronous_copies);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      put<unsigned long long>(out, block->id);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      put<unsigned long long>(out, !in_order ? block->id : mapping(*block) / kPoolMapping * 2 + (pooled ? 0 : 1));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put<unsigned>(out, managed);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(out, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      put<unsigned>(out, plain);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      put<CUdeviceptr>(out, block->base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put<std::size_t>(out, block->bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      put<CUdeviceptr>(out, mapping(*block));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      put<std::size_t>(out, in_order ? kPoolMapping : block->bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      put<unsigned>(out, true);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put<unsigned long long>(out, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(out, pooled ? block->pool : nullptr);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

SIM_CALL(cuPointerGetAttribute, kContext, (void* out, CUpointer_attribute attribute, CUdeviceptr pointer),
         (out, attribute, pointer)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get(call, out, attribute, pointer);
}

// Unlike the call for one attribute, this one has an answer for any pointer: zeros, or none, or for memory that the
// driver does not know, which may be the host's, the pointer itself (H200, 580.159).
SIM_CALL(cuPointerGetAttributes, kContext,
         (unsigned count, CUpointer_attribute* attributes, void** out, CUdeviceptr pointer),
         (count, attributes, out, pointer)) {
  if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (get(call, out[i], attributes[i], pointer) == CUDA_SUCCESS) continue;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE || attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
      continue;
    std::memset(out[i], 0, size_of(attributes[i]));
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) put<int>(out[i], -2);
    if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER && call.driver.memory.find_known(pointer) == nullptr)
      put(out[i], pointer);
  }
  return CUDA_SUCCESS;
}

SIM_CALL(cuPointerSetAttribute, kContext, (const void* value, CUpointer_attribute attribute, CUdeviceptr pointer),
         (value, attribute, pointer)) {
  Block* block = call.driver.memory.find_known(pointer);
  if (value == nullptr || block == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (block->kind == BlockKind::kMapped) return CUDA_ERROR_NOT_SUPPORTED;  // as on an H200 (580.159)
  block->synchronous_copies = *static_cast<const unsigned*>(value) != 0;
  return CUDA_SUCCESS;
}
