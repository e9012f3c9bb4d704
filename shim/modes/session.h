// What this process does with the calls it intercepts: nothing (off), record, replay, or all in turn (auto);
// or check what they touch.
//
// Decided by the environment on first use, which may be before any constructor has run: libraries that are loaded at
// the start are initialised before this one, and may use the GPU in that. The first call makes the receiver of calls. A
// forked child passes everything through if its parent has used the GPU; otherwise it starts its own. Any thread; no
// locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "nimble/internal/call.h"
#include "shim/driver/interception.h"

namespace nimble::shim {

extern std::atomic<std::uintptr_t> g_sink;  // a CallSink*, or null, or that:
inline constexpr std::uintptr_t kUnstarted = 1;

// If memory runs out, calls pass.
CallSink* start_session() noexcept;

// The receiver of calls, if there is one already.
CallSink* started_sink();

// The receiver of calls, or null where they pass straight through.
inline CallSink* sink() {
  const std::uintptr_t current = g_sink.load(std::memory_order_acquire);
  if (current == kUnstarted) [[unlikely]]
    return start_session();
  return reinterpret_cast<CallSink*>(current);
}

}  // namespace nimble::shim
