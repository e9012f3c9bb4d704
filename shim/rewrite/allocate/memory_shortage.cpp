#include "shim/rewrite/allocate/memory_shortage.h"

#include <algorithm>
#include <string>

#include "shim/state/device_reader.h"
#include "shim/state/entry.h"

namespace nimble::shim {

std::uint64_t MemoryShortage::free_memory() const {
  const auto ask = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(context_.driver_symbol("cuMemGetInfo_v2"));
  const RelaxedCaptures relaxed(context_);
  std::size_t free = 0, total = 0;
  return ask && ask(&free, &total) == CUDA_SUCCESS ? free : 0;
}

std::uint64_t MemoryShortage::free_memory_of(CUcontext context) const {
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  if (context == current_context()) return free_memory();
  if (!push || !pop || push(context) != CUDA_SUCCESS) return 0;
  const std::uint64_t free = free_memory();
  pop(&context);
  return free;
}

bool MemoryShortage::leaves_to_driver(std::uint64_t capture, const CaptureHome& home) {
  constexpr std::uint64_t kPartForOthers = 4, kPart = 2;
  const std::optional<std::uint64_t> held = pool_.held_by_others(capture, home.context);
  if (!held) return false;
  const std::uint64_t free = free_memory_of(home.context);
  if (free == 0) return false;  // or it is not known
  // What they have while they run is given back where it is asked for.
  const std::uint64_t transient = pool_.transient().all(home.context), left = free + transient;
  const std::uint64_t lasts = *held - std::min(*held, transient);
  const bool serves = lasts <= left / kPartForOthers;
  pool_.bound(capture, serves ? left / kPart : 0);
  if (serves) return false;
  if (!said_.exchange(true))
    log_.warn("graphs that were captured hold " + std::to_string(lasts >> 20) +
              " MiB, and little is left: graphs that follow get theirs from the driver as long as that is so, and stay "
              "as they are.");
  return true;
}

// Not while somebody looks at memory, who may be about to read what is there.
std::uint64_t MemoryShortage::give_back_transient(CUcontext context) {
  if (probes_ || requests_.any_learns()) return 0;
  const std::uint64_t given = pool_.transient().give_back(context);
  if (given != 0) trim(context);  // as the driver gives its own
  return given;
}

// ---- what the program is told ----

// All that ours hold would be free, but for the part that the driver would keep.
std::optional<std::uint64_t> MemoryShortage::free_memory_told() {
  CUcontext const context = current_context();
  const std::optional<CUdevice> device = device_of(context);
  if (!device) return std::nullopt;
  const GraphReserve& reserve = pool_.graphs().reserve();
  const std::uint64_t held = pool_.held(context);
  std::uint64_t kept = reserve.bytes(*device);
  if (held + kept == 0) return std::nullopt;
  const std::uint64_t free = free_memory();
  if (kept > held + free) {  // it would have given some back to whoever has that memory now
    trim(context);
    kept = reserve.bytes(*device);
  }
  const std::uint64_t given_back = std::min(held - std::min(held, kept), pool_.transient().all(context));
  return free + given_back - std::min(free, kept - std::min(held, kept));
}

std::optional<CUdevice> MemoryShortage::device_of(CUcontext context) const {
  const auto ask = reinterpret_cast<decltype(&::cuCtxGetDevice)>(context_.driver_symbol("cuCtxGetDevice"));
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  CUdevice device = 0;
  if (!ask || !push || !pop || !context || push(context) != CUDA_SUCCESS) return std::nullopt;
  const bool known = ask(&device) == CUDA_SUCCESS;
  pop(&context);
  return known ? std::optional(device) : std::nullopt;
}

void MemoryShortage::trim(CUcontext context) {
  if (const std::optional<CUdevice> device = device_of(context)) pool_.graphs().trim(context, *device);
}

}  // namespace nimble::shim
