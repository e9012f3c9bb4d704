#include "shim/real_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>

#include "shim/dlsym_hook.h"
#include "shim/wrappers.h"

namespace nimble::shim {

std::atomic<void*> g_real[kCallCount];

namespace {

struct Resolved {
  void* library = nullptr;
  std::array<std::pair<void*, CallId>, kCallCount> by_pointer{};  // sorted; read only once `done`
  std::size_t count = 0;
};

std::mutex g_mutex;
std::atomic<bool> g_done{false};
Resolved g_resolved;

void* open_driver() {
  // The program's own copy if it has one, so that both talk to the same driver.
  if (void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) return library;
  return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
}

}  // namespace

bool resolve_driver() {
  if (g_done.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(g_mutex);
  if (g_done.load(std::memory_order_relaxed)) return true;
  void* library = open_driver();
  if (!library) return false;
  g_resolved.library = library;
  for (std::size_t id = 0; id < kCallCount; ++id) {
    void* pointer = real_dlsym(library, kCallSymbols[id]);
    if (!pointer) continue;
    g_real[id].store(pointer, std::memory_order_release);
    g_resolved.by_pointer[g_resolved.count++] = {pointer, static_cast<CallId>(id)};
  }
  std::sort(g_resolved.by_pointer.begin(),
            g_resolved.by_pointer.begin() + static_cast<std::ptrdiff_t>(g_resolved.count));
  g_done.store(true, std::memory_order_release);
  return true;
}

void* driver_symbol(const char* name) {
  if (!resolve_driver()) return nullptr;
  return real_dlsym(g_resolved.library, name);
}

void* wrapper_for_pointer(void* real) {
  if (!real || !resolve_driver()) return real;
  const auto end = g_resolved.by_pointer.begin() + static_cast<std::ptrdiff_t>(g_resolved.count);
  const auto found = std::lower_bound(g_resolved.by_pointer.begin(), end, std::pair{real, CallId{}});
  return found != end && found->first == real ? wrapper(found->second) : real;
}

void* wrapper_for_symbol(const char* name) {
  // A few hundred names, asked for a few hundred times in a process's life.
  static const auto* sorted = [] {
    auto* ids = new std::array<CallId, kCallCount>;
    for (std::size_t id = 0; id < kCallCount; ++id) (*ids)[id] = static_cast<CallId>(id);
    std::sort(ids->begin(), ids->end(),
              [](CallId a, CallId b) { return std::strcmp(kCallSymbols[a], kCallSymbols[b]) < 0; });
    return ids;
  }();
  const auto found = std::lower_bound(sorted->begin(), sorted->end(), name, [](CallId id, const char* text) {
    return std::strcmp(kCallSymbols[id], text) < 0;
  });
  return found != sorted->end() && std::strcmp(kCallSymbols[*found], name) == 0 ? wrapper(*found) : nullptr;
}

}  // namespace nimble::shim
