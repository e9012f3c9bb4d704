#include "shim/stream_table.h"

#include <array>
#include <mutex>

#include "shim/real_driver.h"

namespace nimble::shim {

StreamTable& streams() {
  static auto* table = new StreamTable;  // never destroyed: threads may submit while the process ends
  return *table;
}

namespace {

bool is_capturing(CUstream stream) {
  static constinit DriverFunction<decltype(&::cuStreamIsCapturing)> function("cuStreamIsCapturing");
  const auto ask = function.get();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

StreamKind StreamTable::kind(const StreamRef& stream) {
  if (stream.is_legacy()) return StreamKind::legacy;
  if (stream.is_per_thread()) return StreamKind::per_thread;
  struct Last {
    std::uint64_t key, generation;
    StreamKind kind;
  };
  // Few programs use more streams than this from one thread at a time.
  static thread_local std::array<Last, 16> cache __attribute__((tls_model("initial-exec"))){};
  Last& last = cache[(stream.key >> 4) % cache.size()];
  const std::uint64_t now = generation_.load(std::memory_order_acquire);
  if (last.key == stream.key && last.generation == now) return last.kind;
  StreamKind kind = StreamKind::blocking;
  bool known = false;
  {
    std::shared_lock lock(mutex_);
    if (const auto found = kinds_.find(stream.key); found != kinds_.end()) {
      kind = found->second;
      known = true;
    }
  }
  if (!known) {
    // Asking a stream that captures for its flags ends its capture. Until it is done it passes for blocking, which
    // orders it with more than there may be.
    if (is_capturing(stream.handle)) return StreamKind::blocking;
    static constinit DriverFunction<decltype(&::cuStreamGetFlags)> function("cuStreamGetFlags");
    const auto get_flags = function.get();
    unsigned flags = 0;
    if (get_flags && get_flags(stream.handle, &flags) == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING)) {
      kind = StreamKind::non_blocking;
    }
    std::lock_guard lock(mutex_);
    kinds_[stream.key] = kind;
  }
  last = {stream.key, now, kind};
  return kind;
}

void StreamTable::ended(const StreamRef& stream) {
  std::lock_guard lock(mutex_);
  kinds_.erase(stream.key);
  generation_.fetch_add(1, std::memory_order_release);
}

}  // namespace nimble::shim
