#include "shim/decode/entry.h"

#include <atomic>

#include "shim/real_driver.h"

namespace nimble::shim {

std::uint32_t thread_index() {
  static std::atomic<std::uint32_t> next{0};
  static thread_local std::uint32_t index __attribute__((tls_model("initial-exec"))) =
      next.fetch_add(1, std::memory_order_relaxed);
  return index;
}

StreamRef stream_ref(Entry entry, CUstream handle) {
  const bool per_thread =
      handle == CU_STREAM_PER_THREAD || (!handle && entry.default_stream == DefaultStream::per_thread);
  if (handle && handle != CU_STREAM_LEGACY && !per_thread) return {handle, reinterpret_cast<std::uint64_t>(handle)};
  // A default stream belongs to the current context. Contexts are aligned objects: their low bits are free.
  static constinit DriverFunction<decltype(&::cuCtxGetCurrent)> get_current("cuCtxGetCurrent");
  CUcontext context = nullptr;
  if (const auto current = get_current.get()) current(&context);
  const auto base = reinterpret_cast<std::uint64_t>(context) & ~std::uint64_t{3};
  if (per_thread) return {CU_STREAM_PER_THREAD, (base ^ (std::uint64_t{thread_index()} << 48)) | 2};
  return {CU_STREAM_LEGACY, base | 1};
}

}  // namespace nimble::shim
