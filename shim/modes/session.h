// What this process does with the calls it intercepts: nothing (off), record, replay, or all
// of that one after the other (auto).
//
// Decided by the environment when it is first asked for, which may be before any constructor has run: libraries that
// are loaded at the start are set up before this one, and may use the GPU while they are. The receiver of calls is made
// when the first call comes. A forked child passes everything through if its parent has used the GPU; otherwise it
// starts its own. Any thread; no locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "nimble/internal/call.h"

namespace nimble::shim {

enum class Interception : std::uint8_t { undecided, off, on };

extern std::atomic<Interception> g_interception;
extern std::atomic<std::uintptr_t> g_sink;  // a CallSink*, or null, or that:
inline constexpr std::uintptr_t kUnstarted = 1;

// Without memory both decide for letting calls pass.
Interception decide_interception() noexcept;
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

// Whether entry points are handed out as wrappers at all. False in off mode: then even looked-up pointers are the
// driver's own, and Nimble costs nothing.
inline bool intercepting() {
  Interception known = g_interception.load(std::memory_order_acquire);
  if (known == Interception::undecided) [[unlikely]]
    known = decide_interception();
  return known == Interception::on;
}

}  // namespace nimble::shim
