#include "shim/state/contexts.h"

#include <cstdint>

#include "shim/driver/real_driver.h"
#include "shim/state/code/function_table.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

CUcontext current_context() {
  static constinit DriverFunction<decltype(&::cuCtxGetCurrent)> get_current("cuCtxGetCurrent");
  CUcontext context = nullptr;
  if (const auto current = get_current.get()) current(&context);
  return context;
}

bool primary_context_is_active(CUdevice device) {
  static constinit DriverFunction<decltype(&::cuDevicePrimaryCtxGetState)> get_state("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  const auto ask = get_state.get();
  return !ask || (ask(device, &flags, &active) == CUDA_SUCCESS && active != 0);
}

// The driver has no query for it, but retaining tells; done only if that does not create the context.
CUcontext primary_context(CUdevice device) {
  static constinit DriverFunction<decltype(&::cuDevicePrimaryCtxRetain)> retain("cuDevicePrimaryCtxRetain");
  static constinit DriverFunction<decltype(&::cuDevicePrimaryCtxRelease_v2)> release("cuDevicePrimaryCtxRelease_v2");
  CUcontext context = nullptr;
  if (!retain.get() || !release.get() || !primary_context_is_active(device)) return nullptr;
  if (retain.get()(&context, device) != CUDA_SUCCESS) return nullptr;
  release.get()(device);
  return context;
}

CUcontext context_of_green(CUgreenCtx green) {
  static constinit DriverFunction<decltype(&::cuCtxFromGreenCtx)> from_green("cuCtxFromGreenCtx");
  CUcontext context = nullptr;
  if (const auto ask = from_green.get()) ask(&context, green);
  return context;
}

bool is_primary(CUcontext context) {
  static constinit DriverFunction<decltype(&::cuDeviceGetCount)> get_count("cuDeviceGetCount");
  int count = 0;
  const auto ask = get_count.get();
  if (!ask || ask(&count) != CUDA_SUCCESS) return false;
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (primary_context_is_active(ordinal) && primary_context(ordinal) == context) return true;
  return false;
}

void context_ending(CUcontext context) { streams().context_ended(context); }
void context_ended(CUcontext context) { functions().context_ended(context); }

}  // namespace nimble::shim
