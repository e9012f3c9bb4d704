// Whether this process's driver calls are intercepted at all.
//
// Decided by the environment on first use, which may be before any constructor has run (shim/modes/session.cpp). One
// atomic; any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace nimble::shim {

enum class Interception : std::uint8_t { undecided, off, on };

extern std::atomic<Interception> g_interception;

// Defined by shim/modes/session.cpp. If memory runs out, calls pass.
Interception decide_interception() noexcept;

// Whether entry points are handed out as wrappers. False in off mode: then even looked-up pointers are the driver's
// own, and Nimble costs nothing.
inline bool intercepting() {
  Interception known = g_interception.load(std::memory_order_acquire);
  if (known == Interception::undecided) [[unlikely]]
    known = decide_interception();
  return known == Interception::on;
}

}  // namespace nimble::shim
