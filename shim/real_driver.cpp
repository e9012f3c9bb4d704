#include "shim/real_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "shim/dlsym_hook.h"
#include "shim/wrappers.h"

namespace nimble::shim {

std::atomic<void*> g_real[kCallCount];

namespace {

// What resolve_driver() found. Never freed.
struct Resolved {
  void* library = nullptr;
  std::array<std::pair<void*, CallId>, kCallCount> by_pointer{};  // sorted
  std::size_t count = 0;
};

std::atomic<const Resolved*> g_resolved{nullptr};

}  // namespace

// Without a lock of ours: the dynamic loader has its own, which another thread may hold while it waits for us. Threads
// that come at once all look, and find the same.
bool resolve_driver() {
  if (g_resolved.load(std::memory_order_acquire)) return true;
  // The program's own copy: whoever calls the driver, or asks for its functions, has loaded it.
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
  auto* const found = new Resolved;  // kept for the life of the process, by whoever comes first
  found->library = library;
  for (std::size_t id = 0; id < kCallCount; ++id) {
    void* const pointer = real_dlsym(library, kCallSymbols[id]);
    if (!pointer) continue;
    g_real[id].store(pointer, std::memory_order_release);
    found->by_pointer[found->count++] = {pointer, static_cast<CallId>(id)};
  }
  std::sort(found->by_pointer.begin(), found->by_pointer.begin() + static_cast<std::ptrdiff_t>(found->count));
  const Resolved* nobody = nullptr;
  if (!g_resolved.compare_exchange_strong(nobody, found, std::memory_order_acq_rel)) delete found;
  return true;
}

void* driver_symbol(const char* name) {
  if (!resolve_driver()) return nullptr;
  return real_dlsym(g_resolved.load(std::memory_order_acquire)->library, name);
}

void* wrapper_for_pointer(void* real) {
  if (!real || !resolve_driver()) return real;
  const Resolved& resolved = *g_resolved.load(std::memory_order_acquire);
  const auto end = resolved.by_pointer.begin() + static_cast<std::ptrdiff_t>(resolved.count);
  const auto found = std::lower_bound(resolved.by_pointer.begin(), end, std::pair{real, CallId{}});
  return found != end && found->first == real ? wrapper(found->second) : real;
}

}  // namespace nimble::shim
