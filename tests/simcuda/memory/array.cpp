// Arrays of one dimension, and surfaces over them, by which alone anything reaches their memory: kernels of images do
// through surface_memory() (image/kernel.h).
#include <map>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"
#include "tests/simcuda/memory/copy.h"
#include "tests/simcuda/memory/pool.h"

using namespace simcuda;

struct CUarray_st {
  Block* block;
};

namespace {

// Under the driver's mutex.
struct Arrays {
  std::map<CUarray, CUarray_st> arrays;
  std::map<CUsurfObject, CUDA_RESOURCE_DESC> surfaces;
  CUsurfObject next = 1;
};
Arrays& state() {
  static auto& all = *new Arrays();
  return all;
}

std::uint64_t element_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

SIM_CALL(cuArray3DCreate_v2, kContext, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR* description),
         (array, description)) {
  if (array == nullptr || description == nullptr || description->Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description->Height != 0 || description->Depth != 0) return not_supported("an array of several dimensions");
  const std::uint64_t element = element_bytes(description->Format) * description->NumChannels;
  if (element == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description->Width > Memory::kTotal / element) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  const std::uint64_t bytes = description->Width * element;
  Block* block = call.driver.memory.allocate(BlockKind::kDevice, bytes, bytes, call.context);
  if (block == nullptr) {
    make_room();
    block = call.driver.memory.allocate(BlockKind::kDevice, bytes, bytes, call.context);
  }
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  // A handle says nothing about where the memory is.
  const auto handle = reinterpret_cast<CUarray>(static_cast<std::uintptr_t>(state().next++ * 16));
  state().arrays[handle] = {block};
  *array = handle;
  return CUDA_SUCCESS;
}

SIM_CALL(cuArrayDestroy, kContext, (CUarray array), (array)) {
  const auto found = state().arrays.find(array);
  if (found == state().arrays.end()) return CUDA_ERROR_INVALID_HANDLE;
  call.driver.engine.finish_all();
  call.driver.memory.release(found->second.block);
  state().arrays.erase(found);
  return call.context->fault;
}

SIM_CALL(cuSurfObjectCreate, kContext, (CUsurfObject * object, const CUDA_RESOURCE_DESC* resource),
         (object, resource)) {
  if (object == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY ||
      state().arrays.count(resource->res.array.hArray) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *object = state().next++;
  state().surfaces[*object] = *resource;
  return CUDA_SUCCESS;
}

SIM_CALL(cuSurfObjectDestroy, kContext, (CUsurfObject object), (object)) {
  return state().surfaces.erase(object) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuSurfObjectGetResourceDesc, kContext, (CUDA_RESOURCE_DESC * resource, CUsurfObject object),
         (resource, object)) {
  const auto found = state().surfaces.find(object);
  if (resource == nullptr || found == state().surfaces.end()) return CUDA_ERROR_INVALID_VALUE;
  *resource = found->second;
  return CUDA_SUCCESS;
}

// Called by kernels, which run with the driver's mutex held.
extern "C" SIM_EXPORT void* simcuda_surface_memory(unsigned long long surface) {
  const auto found = state().surfaces.find(surface);
  if (found == state().surfaces.end()) return nullptr;
  const auto array = state().arrays.find(found->second.res.array.hArray);
  return array != state().arrays.end() ? reinterpret_cast<void*>(array->second.block->base) : nullptr;
}
