#include "shim/state/entry.h"

#include <atomic>

#include "shim/driver/real_driver.h"
#include "shim/state/function_table.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

namespace detail {

constinit thread_local std::uint32_t t_thread_number = 0;

std::uint32_t number_thread() {
  static std::atomic<std::uint32_t> last{0};
  return t_thread_number = last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// It belongs to the current context. Contexts are aligned objects: their low bits are free.
StreamRef default_stream_ref(bool per_thread) {
  const auto base = reinterpret_cast<std::uint64_t>(current_context()) & ~std::uint64_t{3};
  if (per_thread) return {CU_STREAM_PER_THREAD, (base ^ (std::uint64_t{thread_index()} << 48)) | 2};
  return {CU_STREAM_LEGACY, base | 1};
}

}  // namespace detail

CUcontext current_context() {
  static constinit DriverFunction<decltype(&::cuCtxGetCurrent)> get_current("cuCtxGetCurrent");
  CUcontext context = nullptr;
  if (const auto current = get_current.get()) current(&context);
  return context;
}

namespace {

std::atomic<std::uint64_t> g_default_pool_changes{0};

}  // namespace

bool default_pool_is_plain() { return default_pool_changes() == 0; }
std::uint64_t default_pool_changes() { return g_default_pool_changes.load(std::memory_order_relaxed); }
void default_pool_changed() { g_default_pool_changes.fetch_add(1, std::memory_order_relaxed); }

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
