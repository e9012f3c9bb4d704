// The real driver: its entry points by call id, and the way back from a real pointer to our wrapper.
//
// Process-wide state, filled once under a lock when libcuda.so.1 is first needed, then only read. Nothing here calls
// the driver. Symbols that the loaded driver does not have stay null: an entry point is never invented.
#pragma once

#include <atomic>

#include "shim/calls.h"

namespace nimble::shim {

// The real entry points, null until resolve_driver() has run. One cache line of eight at a time; read on every call.
extern std::atomic<void*> g_real[kCallCount];

// Loads libcuda.so.1 if the program has not yet, and fills the table. Idempotent, thread-safe. Returns whether there is
// a driver at all.
bool resolve_driver();

// A driver function outside the call table (those that the shim itself needs), or null. Loads the driver as above.
void* driver_symbol(const char* name);

// The wrapper for a pointer that the real driver gave out, or the pointer itself where there is none. Keyed on the
// returned pointer, not on names and versions: see docs/interception in ARCHITECTURE.md.
void* wrapper_for_pointer(void* real);

// The wrapper for an exported symbol's name, or null.
void* wrapper_for_symbol(const char* name);

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

}  // namespace nimble::shim
