#include "shim/state/stream_table.h"

#include <array>
#include <mutex>

#include "shim/driver/real_driver.h"
#include "shim/process/handle_slot.h"
#include "shim/process/per_thread.h"
#include "shim/state/contexts.h"

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
  if (stream.is_of_graph()) return StreamKind::non_blocking;
  return facts(stream).kind;
}

CUcontext StreamTable::context(const StreamRef& stream) {
  return stream.is_legacy() || stream.is_per_thread() ? current_context() : facts(stream).context;
}

namespace {

// A thread's latest look-ups. Few programs use more streams than this from one thread at a time.
struct LastStreams {
  struct Last {
    std::uint64_t key, generation;
    StreamKind kind;
    CUcontext context;
  };
  std::array<Last, 16> slots{};
};

}  // namespace

StreamTable::Facts StreamTable::facts(const StreamRef& stream) {
  auto& cache = PerThread<LastStreams>::get().slots;
  LastStreams::Last& last = cache[handle_slot(stream.key, cache.size())];
  const std::uint64_t now = generation_.load(std::memory_order_acquire);
  if (last.key == stream.key && last.generation == now) return {last.kind, last.context};
  Facts facts;
  bool known = false;
  {
    std::shared_lock lock(mutex_);
    if (const auto found = facts_.find(stream.key); found != facts_.end()) {
      facts = found->second;
      known = true;
    }
  }
  if (!known) {
    static constinit DriverFunction<decltype(&::cuStreamGetFlags)> flags_function("cuStreamGetFlags");
    static constinit DriverFunction<decltype(&::cuStreamGetCtx)> context_function("cuStreamGetCtx");
    const auto get_context = context_function.get();
    if (!get_context || get_context(stream.handle, &facts.context) != CUDA_SUCCESS) facts.context = nullptr;
    // Asking a capturing stream for its flags ends its capture. Until that is done it counts as blocking, which may
    // order it with more than necessary.
    if (is_capturing(stream.handle)) return facts;
    unsigned flags = 0;
    const auto get_flags = flags_function.get();
    if (get_flags && get_flags(stream.handle, &flags) == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING)) {
      facts.kind = StreamKind::non_blocking;
    }
    std::lock_guard lock(mutex_);
    facts_[stream.key] = facts;
  }
  last = {stream.key, now, facts.kind, facts.context};
  return facts;
}

void StreamTable::ended(const StreamRef& stream) {
  std::lock_guard lock(mutex_);
  facts_.erase(stream.key);
  generation_.fetch_add(1, std::memory_order_release);
}

void StreamTable::context_ended(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::erase_if(
      facts_, [&](const auto& entry) { return !context || !entry.second.context || entry.second.context == context; });
  generation_.fetch_add(1, std::memory_order_release);
}

}  // namespace nimble::shim
