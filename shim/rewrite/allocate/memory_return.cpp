#include "shim/rewrite/allocate/memory_return.h"

#include <chrono>
#include <cstdint>
#include <vector>

#include "shim/driver/guard.h"
#include "shim/rewrite/context_wait.h"
#include "shim/state/contexts.h"

namespace nimble::shim {

namespace {

// How much was retired when the current call began.
thread_local std::uint64_t t_retirements __attribute__((tls_model("initial-exec"))) = 0;

// Whether the program has just waited for all of its work on the GPU.
bool was_waited_for(const Call& call) {
  return call.kind == CallKind::context_synchronize && !call.query &&
         (!call.context || call.context == current_context());
}

}  // namespace

FormerMemory::Going MemoryReturn::going() {
  return [this](const std::vector<MemorySlot>& slots) { uses_.allocator.gone(slots); };
}

void MemoryReturn::wait_begins() { t_retirements = uses_.pool.former().moment(); }

void MemoryReturn::after(const Call& call, bool good) {
  FormerMemory& former = uses_.pool.former();
  if (former.has_spare()) former.reuse(going());
  if (good && call.kind == CallKind::stream_synchronize)
    uses_.pool.graphs().reserve().waited_for_stream(call.stream.key, t_retirements);
  if (!good || !was_waited_for(call)) return;
  uses_.pool.graphs().waited(current_context(), t_retirements);
  if (former.has_retired()) former.sweep(t_retirements, going());
}

bool MemoryReturn::give_back(const Call& call) noexcept try {
  constexpr std::chrono::milliseconds kPatience{1000};
  if (!uses_.functions.load()) return false;
  bool given = uses_.graphs.give_back();
  FormerMemory& former = uses_.pool.former();
  TransientMemory& transient = uses_.pool.transient();
  const std::uint64_t first = former.moment();
  CUcontext const context = current_context();
  // From graphs that are known not to run; the call may need more.
  if (const std::uint64_t gone = uses_.shortage.give_back_transient(context); gone != 0 && gone >= call.memory.size)
    return true;
  if (!former.has_retired_in(context) && transient.all(context) == 0) return given;
  {
    const CapturesUnderWay::Hold hold(uses_.captures);
    // A capture that begins now waits for us, or we see it.
    if (!hold || !hold.none_goes_on() || !is_done_within(kPatience, context, uses_.context, Guard::stay_inside))
      return given;
  }
  uses_.pool.graphs().waited(context, first);
  given = uses_.shortage.give_back_transient(context) != 0 || given;
  return !former.sweep(first, going()).empty() || given;
} catch (const std::exception& error) {
  uses_.log.failed(call, error);
  return false;
}

}  // namespace nimble::shim
