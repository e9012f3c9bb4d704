// Texture and surface objects. They can be made over linear memory and asked what they are; kernels of images have no
// way to read them.
#include <map>

#include "tests/simcuda/copy.h"
#include "tests/simcuda/entry.h"

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

// A surface is of an array, and this device has none.
SIM_CALL(cuSurfObjectCreate, kContext, (CUsurfObject * object, const CUDA_RESOURCE_DESC* resource),
         (object, resource)) {
  if (object == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return not_supported("a surface of an array");
}
