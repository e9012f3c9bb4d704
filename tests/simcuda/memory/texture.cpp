// Texture objects and tensor maps. Textures can be made over linear memory and asked what they are;
// kernels of images read them through texture_memory() (image/kernel.h).
#include <map>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/memory/copy.h"

using namespace simcuda;

namespace {

struct Texture {
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  bool has_view;
};

// Under the driver's mutex.
std::map<CUtexObject, Texture>& textures() {
  static auto& state = *new std::map<CUtexObject, Texture>();
  return state;
}
CUtexObject next_texture = 1;

const Texture* find(CUtexObject object) {
  const auto at = textures().find(object);
  return at != textures().end() ? &at->second : nullptr;
}

}  // namespace

SIM_CALL(cuTexObjectCreate, kContext,
         (CUtexObject * object, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
          const CUDA_RESOURCE_VIEW_DESC* view),
         (object, resource, texture, view)) {
  if (object == nullptr || resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr pointer = 0;
  if (resource->resType == CU_RESOURCE_TYPE_LINEAR) {
    pointer = resource->res.linear.devPtr;
  } else if (resource->resType == CU_RESOURCE_TYPE_PITCH2D) {
    pointer = resource->res.pitch2D.devPtr;
  } else {
    return not_supported("a texture of an array");
  }
  if (view != nullptr) return CUDA_ERROR_INVALID_VALUE;  // only arrays have views
  if (call.driver.memory.find_allocated(pointer) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *object = next_texture++;
  textures()[*object] = {*resource, *texture, {}, false};
  return CUDA_SUCCESS;
}

SIM_CALL(cuTexObjectDestroy, kContext, (CUtexObject object), (object)) {
  return textures().erase(object) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuTexObjectGetResourceDesc, kContext, (CUDA_RESOURCE_DESC * resource, CUtexObject object),
         (resource, object)) {
  const Texture* found = find(object);
  if (resource == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resource = found->resource;
  return CUDA_SUCCESS;
}

SIM_CALL(cuTexObjectGetTextureDesc, kContext, (CUDA_TEXTURE_DESC * texture, CUtexObject object), (texture, object)) {
  const Texture* found = find(object);
  if (texture == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *texture = found->texture;
  return CUDA_SUCCESS;
}

// Called by kernels, which run with the driver's mutex held.
extern "C" SIM_EXPORT const void* simcuda_texture_memory(unsigned long long texture) {
  const Texture* found = find(texture);
  if (found == nullptr) return nullptr;
  const auto& resource = found->resource;
  const CUdeviceptr pointer =
      resource.resType == CU_RESOURCE_TYPE_LINEAR ? resource.res.linear.devPtr : resource.res.pitch2D.devPtr;
  return reinterpret_cast<const void*>(pointer);
}

// The plain address, where today's drivers have it, and the extents after it.
SIM_CALL(cuTensorMapEncodeTiled, kInit,
         (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
          const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides,
          CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
          CUtensorMapFloatOOBfill fill),
         (map, type, rank, address, dims, strides, box, element_strides, interleave, swizzle, promotion, fill)) {
  if (map == nullptr || address == nullptr || dims == nullptr || rank == 0 || rank > 5 ||
      (rank > 1 && strides == nullptr) || reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *map = {};
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(address);
  for (cuuint32_t i = 0; i < rank; ++i) map->opaque[1 + i] = dims[i];
  for (cuuint32_t i = 1; i < rank; ++i) map->opaque[8 + i] = strides[i - 1];
  return CUDA_SUCCESS;
}
