// The real driver: its entry points by call id, and the way back from a real pointer to our wrapper.
//
// Process-wide state, filled when libcuda.so.1 is first needed, then only read. Nothing here calls
// the driver. Symbols that the loaded driver lacks stay null: we never invent an entry point.
#pragma once

#include <atomic>

#include "shim/driver/calls.h"

namespace nimble::shim {

// The driver's entry points, null until resolve_driver() has run. One cache line of eight at a time; read on every
// call.
extern std::atomic<void*> g_real[kCallCount];

// What a call by name would have reached without us: the next definition in the program's search order. That is the
// driver's, unless a preloaded library that comes after us wraps it. Null as above.
extern std::atomic<void*> g_next[kCallCount];

// Fills both tables if libcuda.so.1 is loaded; loads it with `load`. Idempotent, thread-safe. Returns whether it is
// there.
bool resolve_driver(bool load = false);

// The dynamic loader's handle of the driver, or null where it is not loaded.
void* driver_library();

// A driver function outside the call table (those that the shim itself needs), or null.
void* driver_symbol(const char* name);

// The same for a string literal: looked up once, and from then on without the dynamic loader, whose lock may be held by
// a thread that waits for one of ours. Lock-free.
void* known_driver_symbol(const char* name);

// The wrapper for `id`, with the entry point's own signature: in front of the driver's own function, and in front of
// what a call by name would reach (g_next). Defined by shim/intercept/wrappers.cpp.
void* wrapper(CallId id);
void* next_wrapper(CallId id);

// The wrapper for a pointer that the driver gave out (or a library that stands in front of it), or the pointer itself
// where there is none. Keyed on the returned pointer, not on names and versions: see the decision of that name in
// docs/decisions.
void* wrapper_for_pointer(void* real);

// A driver function outside the call table, looked up when it is first needed. Not a function-local static: its guard
// would be a lock held while taking the dynamic loader's.
template <class Function>
class DriverFunction {
 public:
  constexpr explicit DriverFunction(const char* name) : name_(name) {}
  // Null where the driver lacks it.
  Function get() {
    void* pointer = pointer_.load(std::memory_order_acquire);
    if (!pointer) {
      pointer = driver_symbol(name_);
      pointer_.store(pointer, std::memory_order_release);
    }
    return reinterpret_cast<Function>(pointer);
  }

 private:
  const char* const name_;
  std::atomic<void*> pointer_{nullptr};
};

// The real entry point of `id`.
template <CallId id>
typename CallType<id>::Function* real() {
  void* pointer = g_real[id].load(std::memory_order_acquire);
  if (!pointer) [[unlikely]] {
    resolve_driver();
    pointer = g_real[id].load(std::memory_order_acquire);
  }
  return reinterpret_cast<typename CallType<id>::Function*>(pointer);
}

// What comes after our export of `id`. A caller by name has a driver, but it may not be loaded yet: some libraries
// define every entry point as a stub that loads the driver on its first call. Our definitions come before those.
template <CallId id>
typename CallType<id>::Function* next() {
  void* pointer = g_next[id].load(std::memory_order_acquire);
  if (!pointer) [[unlikely]] {
    resolve_driver(/*load=*/true);
    pointer = g_next[id].load(std::memory_order_acquire);
  }
  return reinterpret_cast<typename CallType<id>::Function*>(pointer);
}

}  // namespace nimble::shim
