#include "shim/state/stream_ref.h"

#include <atomic>

#include "shim/state/contexts.h"

namespace nimble::shim::detail {

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

}  // namespace nimble::shim::detail
