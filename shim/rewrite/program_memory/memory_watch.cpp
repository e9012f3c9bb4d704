#include "shim/rewrite/program_memory/memory_watch.h"

#include <algorithm>
#include <mutex>

#include "shim/state/contexts.h"

namespace nimble::shim {

const std::uint32_t* MemoryWatch::add(std::span<const std::uint64_t> addresses) {
  const auto range_of =
      reinterpret_cast<decltype(&::cuMemGetAddressRange_v2)>(context_.driver_symbol("cuMemGetAddressRange_v2"));
  if (!range_of) return nullptr;
  Watched made;
  made.context = current_context();
  for (const std::uint64_t address : addresses) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    if (range_of(&base, &size, address) != CUDA_SUCCESS) return nullptr;
    made.places.insert(made.places.end(), {base, address});  // an unmapping may take a part
  }
  std::sort(made.places.begin(), made.places.end());
  made.places.erase(std::unique(made.places.begin(), made.places.end()), made.places.end());
  const std::unique_lock lock(mutex_);
  any_.store(true, std::memory_order_relaxed);
  return &watched_.emplace_back(std::move(made)).gone;
}

bool MemoryWatch::remove(const std::uint32_t* gone) {
  const std::unique_lock lock(mutex_);
  return std::erase_if(watched_, [&](const Watched& each) { return &each.gone == gone; }) != 0;
}

void MemoryWatch::ends(const Call& call) noexcept {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::shared_lock lock(mutex_);
  for (Watched& each : watched_) {
    bool goes = call.kind == CallKind::context_end && (!call.context || call.context == each.context);
    if (call.kind == CallKind::free || call.kind == CallKind::free_async) {
      const auto first = std::lower_bound(each.places.begin(), each.places.end(), call.memory.address);
      goes = first != each.places.end() &&
             (*first == call.memory.address || *first - call.memory.address < call.memory.size);
    }
    // The program reads it without a lock.
    if (goes) std::atomic_ref(each.gone).store(1, std::memory_order_release);
  }
}

}  // namespace nimble::shim
