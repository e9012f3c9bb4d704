#include "shim/rewrite/allocate/memory_fill.h"

#include "shim/record/observers/probe/probe_observer.h"

namespace nimble::shim {

void MemoryFill::came(const Call& call) {
  const bool in_order = call.kind == CallKind::alloc_async;
  if (!ProbeObserver::probes_this_thread() || captures_.any() || call.memory.address % 4 != 0 ||
      (!in_order && call.memory.kind != MemoryKind::device))
    return;
  const std::uint32_t word = 0xf5000000u | (fills_.fetch_add(1, std::memory_order_relaxed) * 0x9e3779u & 0xffffffu);
  if (in_order) {
    if (const auto set = reinterpret_cast<decltype(&::cuMemsetD32Async)>(context_.driver_symbol("cuMemsetD32Async")))
      set(call.memory.address, word, call.memory.size / 4, call.stream.handle);
    return;
  }
  // Such memory may be used on any stream at once, so wait for the fill.
  const auto set = reinterpret_cast<decltype(&::cuMemsetD32_v2)>(context_.driver_symbol("cuMemsetD32_v2"));
  const auto wait = reinterpret_cast<decltype(&::cuStreamSynchronize)>(context_.driver_symbol("cuStreamSynchronize"));
  if (set && wait && set(call.memory.address, word, call.memory.size / 4) == CUDA_SUCCESS) wait(CU_STREAM_LEGACY);
}

}  // namespace nimble::shim
