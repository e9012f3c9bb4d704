#include "shim/rewrite/allocate/free_memory.h"

#include <algorithm>

#include "shim/state/contexts.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

std::uint64_t FreeMemory::left() const {
  const auto ask = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(context_.driver_symbol("cuMemGetInfo_v2"));
  const RelaxedCaptures relaxed(context_);
  std::size_t free = 0, total = 0;
  return ask && ask(&free, &total) == CUDA_SUCCESS ? free : 0;
}

std::uint64_t FreeMemory::left_in(CUcontext context) const {
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  if (context == current_context()) return left();
  if (!push || !pop || push(context) != CUDA_SUCCESS) return 0;
  const std::uint64_t free = left();
  pop(&context);
  return free;
}

// All memory of our captures would be free, except the part that the driver would keep.
std::optional<std::uint64_t> FreeMemory::told() {
  CUcontext const context = current_context();
  const std::optional<CUdevice> device = device_of(context);
  if (!device) return std::nullopt;
  const GraphReserve& reserve = pool_.graphs().reserve();
  const std::uint64_t held = pool_.held(context);
  std::uint64_t kept = reserve.bytes(*device);
  if (held + kept == 0) return std::nullopt;
  const std::uint64_t free = left();
  if (kept > held + free) {  // then it would have given some to whatever has that memory now
    trim(context);
    kept = reserve.bytes(*device);
  }
  const std::uint64_t given_back = std::min(held - std::min(held, kept), pool_.transient().all(context));
  return free + given_back - std::min(free, kept - std::min(held, kept));
}

std::optional<CUdevice> FreeMemory::device_of(CUcontext context) const {
  const auto ask = reinterpret_cast<decltype(&::cuCtxGetDevice)>(context_.driver_symbol("cuCtxGetDevice"));
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  CUdevice device = 0;
  if (!ask || !push || !pop || !context || push(context) != CUDA_SUCCESS) return std::nullopt;
  const bool known = ask(&device) == CUDA_SUCCESS;
  pop(&context);
  return known ? std::optional(device) : std::nullopt;
}

void FreeMemory::trim(CUcontext context) {
  if (const std::optional<CUdevice> device = device_of(context)) pool_.graphs().trim(context, *device);
}

}  // namespace nimble::shim
