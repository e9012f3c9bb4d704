#include "shim/rewrite/context_bounce.h"

#include <cuda.h>

#include <cstddef>

namespace nimble::shim {

namespace {

// Bytes. A context takes 523 MiB on an H200, for a sixth of a second: no one else should run short.
constexpr std::size_t kRoom = std::size_t{4} << 30;

}  // namespace

bool settle(CallContext& context) {
  const auto find = [&]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(context.driver_symbol(name));
    return function != nullptr;
  };
  // Signatures since CUDA 4; later versions of the first take other arguments.
  CUresult (*create)(CUcontext*, unsigned, CUdevice) = nullptr;
  CUresult (*pop)(CUcontext*) = nullptr;
  CUresult (*destroy)(CUcontext) = nullptr;
  CUresult (*get_device)(CUdevice*) = nullptr;
  CUresult (*get_info)(std::size_t*, std::size_t*) = nullptr;
  if (!find(create, "cuCtxCreate_v2") || !find(pop, "cuCtxPopCurrent_v2") || !find(destroy, "cuCtxDestroy_v2") ||
      !find(get_device, "cuCtxGetDevice") || !find(get_info, "cuMemGetInfo_v2"))
    return false;
  CUdevice device = 0;
  CUcontext made = nullptr, popped = nullptr;
  std::size_t free = 0, total = 0;
  if (get_device(&device) != CUDA_SUCCESS || get_info(&free, &total) != CUDA_SUCCESS || free < kRoom) return false;
  if (create(&made, 0, device) != CUDA_SUCCESS) return false;
  pop(&popped);
  return destroy(made) == CUDA_SUCCESS;
}

}  // namespace nimble::shim
