// Puts the calls of several threads into one order that does not depend on how the threads happened to interleave.
//
// A recording has its calls as they came: if two threads issue a step together, in a different order each time, so that
// nothing would seem to repeat. Here the thread with the most work goes on until it needs something that another one
// did before it: a call on the same stream or event, memory that came or went, or a call that concerns everything. Then
// that thread goes on, up to that point. Calls that depend on each other keep the order in which they were recorded, so
// what the program has ordered stays ordered, and nothing else becomes ordered.
//
// Pure; any thread. Time and memory are near linear in calls. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// Indices into Trace::calls in that order; empty if it is the recorded one, because one thread issued all the work.
std::vector<std::uint32_t> thread_order(const Trace& trace);

// Brings the trace's calls into that order. Their `seq` still tells when they came.
void order_threads(Trace& trace);

}  // namespace nimble::analyzer
