#include "shim/driver/real_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>

#include "shim/driver/dlsym_hook.h"

namespace nimble::shim {

std::atomic<void*> g_real[kCallCount];
std::atomic<void*> g_next[kCallCount];

namespace {

struct Known {
  void* pointer;
  CallId id;
  bool is_next;  // in g_next, if that is not the driver's
  bool operator<(const Known& other) const { return pointer < other.pointer; }
};

// What resolve_driver() found. Never freed.
struct Resolved {
  void* library = nullptr;
  std::array<Known, std::size_t{2} * kCallCount> by_pointer{};  // sorted
  std::size_t count = 0;
};

std::atomic<const Resolved*> g_resolved{nullptr};

// Allocates nothing the first time: without the driver's entry points no call of the program could go on. Null if
// several threads look at once and there is no memory for the duplicates.
Resolved* room_for_resolved() {
  static constinit Resolved room;
  static std::atomic<bool> taken{false};
  return taken.exchange(true) ? new (std::nothrow) Resolved : &room;
}

// The next definition of `symbol` after ours, other than the driver's own.
void* other_definition(const char* symbol, const void* drivers) {
  void* const pointer = real_dlsym(RTLD_NEXT, symbol);
  if (!pointer || pointer == drivers) return nullptr;
  // Keep its library loaded: calls through us do not, as a binding by the dynamic loader would.
  Dl_info info;
  if (dladdr(pointer, &info) == 0 || !dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) return nullptr;
  return pointer;
}

}  // namespace

// Takes none of Nimble's locks: another thread may hold the dynamic loader's while it waits for us. Threads that arrive
// at once all look, and find the same.
bool resolve_driver(bool load) {
  if (g_resolved.load(std::memory_order_acquire)) return true;
  // The program's own copy: whoever calls the driver, or asks for its functions, has loaded it.
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
  if (!library) return false;
  Resolved* const found = room_for_resolved();  // kept for the life of the process
  if (found) found->library = library;
  const auto know = [&](void* pointer, CallId id, bool is_next) {
    if (found) found->by_pointer[found->count++] = {pointer, id, is_next};
  };
  for (std::size_t i = 0; i < kCallCount; ++i) {
    const auto id = static_cast<CallId>(i);
    void* const drivers = real_dlsym(library, kCallSymbols[id]);
    void* const others = other_definition(kCallSymbols[id], drivers);
    if (drivers) know(drivers, id, false);
    if (others) know(others, id, true);
    g_real[id].store(drivers, std::memory_order_release);
    g_next[id].store(others ? others : drivers, std::memory_order_release);
  }
  if (!found) return true;
  std::sort(found->by_pointer.begin(), found->by_pointer.begin() + static_cast<std::ptrdiff_t>(found->count));
  const Resolved* none = nullptr;
  // Another thread may have stored the same result. Ours is leaked: it may not lie in memory that can be freed.
  g_resolved.compare_exchange_strong(none, found, std::memory_order_acq_rel);
  return true;
}

void* driver_library() {
  if (!resolve_driver()) return nullptr;
  const Resolved* const resolved = g_resolved.load(std::memory_order_acquire);
  return resolved ? resolved->library : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

void* driver_symbol(const char* name) {
  void* const library = driver_library();
  return library ? real_dlsym(library, name) : nullptr;
}

namespace {

struct Symbol {
  const char* name;
  void* pointer;
};

// Open addressing by hash. Twice as many slots as the shim needs; when full, nothing more is kept.
std::array<std::atomic<const Symbol*>, 512> g_symbols{};

}  // namespace

void* known_driver_symbol(const char* name) {
  std::size_t at = std::hash<std::string_view>()(name) % g_symbols.size();
  std::size_t left = g_symbols.size();
  for (; left > 0; --left, at = (at + 1) % g_symbols.size()) {
    const Symbol* const known = g_symbols[at].load(std::memory_order_acquire);
    if (!known) break;
    if (std::strcmp(known->name, name) == 0) return known->pointer;
  }
  if (!driver_library()) return nullptr;
  // Kept for the life of the process, or dropped. If memory runs out, it is looked up each time.
  auto* const found = new (std::nothrow) Symbol{name, driver_symbol(name)};
  if (!found) return driver_symbol(name);
  for (; left > 0; --left, at = (at + 1) % g_symbols.size()) {
    const Symbol* there = nullptr;
    if (g_symbols[at].compare_exchange_strong(there, found, std::memory_order_acq_rel)) return found->pointer;
    if (std::strcmp(there->name, name) == 0) break;
  }
  void* const pointer = found->pointer;
  delete found;
  return pointer;
}

void* wrapper_for_pointer(void* real) {
  if (!real || !resolve_driver()) return real;
  const Resolved* const known = g_resolved.load(std::memory_order_acquire);
  if (!known) return real;
  const Resolved& resolved = *known;
  const auto end = resolved.by_pointer.begin() + static_cast<std::ptrdiff_t>(resolved.count);
  const auto found = std::lower_bound(resolved.by_pointer.begin(), end, Known{real, CallId{}, false});
  if (found == end || found->pointer != real) return real;
  return found->is_next ? next_wrapper(found->id) : wrapper(found->id);
}

}  // namespace nimble::shim
