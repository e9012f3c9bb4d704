// Who receives the calls that this process makes: the sink of its mode, or no one.
//
// The first call makes it (shim/modes/session.cpp), which may be before any constructor has run: libraries that are
// loaded at the start are initialised before this one, and may use the GPU in that. A forked child passes everything
// through if its parent has used the GPU; otherwise it starts its own. One atomic; any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "nimble/internal/call.h"

namespace nimble::shim {

extern std::atomic<std::uintptr_t> g_sink;  // a CallSink*, or null, or that:
inline constexpr std::uintptr_t kUnstarted = 1;

// Defined by shim/modes/session.cpp. If memory runs out, calls pass.
CallSink* start_session() noexcept;

// The receiver of calls, if there is one already.
inline CallSink* started_sink() {
  const std::uintptr_t current = g_sink.load(std::memory_order_acquire);
  return current == kUnstarted ? nullptr : reinterpret_cast<CallSink*>(current);
}

// The receiver of calls, or null where they pass straight through.
inline CallSink* sink() {
  const std::uintptr_t current = g_sink.load(std::memory_order_acquire);
  if (current == kUnstarted) [[unlikely]]
    return start_session();
  return reinterpret_cast<CallSink*>(current);
}

}  // namespace nimble::shim
