#include "shim/rewrite/allocate/memory_shortage.h"

#include <algorithm>
#include <string>

namespace nimble::shim {

bool MemoryShortage::leaves_to_driver(std::uint64_t capture, const CaptureHome& home) {
  constexpr std::uint64_t kPartForOthers = 4, kPart = 2;
  const std::optional<std::uint64_t> held = pool_.held_by_others(capture, home.context);
  if (!held) return false;
  const std::uint64_t free = free_.left_in(home.context);
  if (free == 0) return false;  // or unknown
  // Transient memory does not count: it is released on demand.
  const std::uint64_t transient = pool_.transient().all(home.context), left = free + transient;
  const std::uint64_t lasts = *held - std::min(*held, transient);
  const bool serves = lasts <= left / kPartForOthers;
  pool_.bound(capture, serves ? left / kPart : 0);
  if (serves) return false;
  if (!said_.exchange(true))
    log_.warn("graphs that were captured hold " + std::to_string(lasts >> 20) +
              " MiB, and little is left: until there is more, later graphs get their memory from the driver and stay "
              "as they are.");
  return true;
}

// Not while a probe looks at memory: it may be about to read it.
std::uint64_t MemoryShortage::give_back_transient(CUcontext context) {
  if (probes_ || requests_.any_learns()) return 0;
  const std::uint64_t given = pool_.transient().give_back(context);
  if (given != 0) free_.trim(context);  // as the driver releases its own
  return given;
}

}  // namespace nimble::shim
