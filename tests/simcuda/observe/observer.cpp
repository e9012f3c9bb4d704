// See observer.h.
#include "tests/simcuda/observe/observer.h"

#include <atomic>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/driver/generated_exports.h"
#include "tests/simcuda/simcuda.h"

namespace simcuda {
namespace {

std::atomic<const SimcudaObserver*> observer{nullptr};
std::atomic<std::uint32_t> last_call{0};

}  // namespace

std::uint32_t observe_call(const char* symbol) {
  const SimcudaObserver* const told = observer.load(std::memory_order_acquire);
  if (told == nullptr) return 0;
  const std::uint32_t call = last_call.fetch_add(1, std::memory_order_relaxed) + 1;
  told->enter(told->user, symbol, call);
  return call;
}

void observe_run(const Op& op) {
  const SimcudaObserver* const told = observer.load(std::memory_order_acquire);
  if (told == nullptr) return;
  if (op.work.kind == WorkKind::kEventRecord) {
    if (told->recorded != nullptr) told->recorded(told->user, op.work.event.event);
    return;
  }
  if (op.call == 0) return;
  const int kind = op.work.kind == WorkKind::kKernel ? 0 : op.work.kind == WorkKind::kCopy ? 1 : 2;
  told->ran(told->user, op.call, kind, op.begin_us, op.end_us);
}

}  // namespace simcuda

extern "C" {

SIM_EXPORT void simcuda_observe(const SimcudaObserver* told) {
  simcuda::observer.store(told, std::memory_order_release);
}

SIM_EXPORT const char* simcuda_symbol(size_t index) {
  return index < simcuda_export_count ? simcuda_exports[index].name : nullptr;
}
}
