// What this process does with the calls it intercepts: nothing (off), record, or replay.
//
// Set once when the library is loaded, from the environment (session.cpp); the sink goes back to null in forked
// children. Reading is one load, so wrappers may ask at every call.
#pragma once

#include <atomic>

#include "nimble/call.h"

namespace nimble::shim {

extern std::atomic<CallSink*> g_sink;
extern bool g_intercepting;

// The receiver of calls, or null where they pass straight through.
inline CallSink* sink() { return g_sink.load(std::memory_order_acquire); }

// Whether entry points are handed out as wrappers at all. False in off mode: then even looked-up pointers are the
// driver's own, and Nimble costs nothing.
inline bool intercepting() { return g_intercepting; }

}  // namespace nimble::shim
