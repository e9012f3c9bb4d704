// Memory that kernels keep their intermediate results in: seen only by what they do with it.
//
// A library hands such memory to its kernels, as room for partial sums or for counters. What a kernel stores there need
// not be seen (observed.h): it may store what an earlier launch has left, or put back what was there. But memory
// that nobody has filled holds nothing to read, and neither does what was only cleared: with all bytes alike, as
// counters begin, which such kernels put back. So where a launch was only seen to read an object, and nothing has
// written anything else to that before, in the step or in the whole trace, it counts as writing to it: two such
// launches do not run side by side.
//
// Nodes of a graph's, which a recording holds as launches that did not run, fill only what captures have allocated: who
// is about to use that has the graph run before. Memory that the host reaches counts as filled, and so does what the
// recording has not seen come. What an op did of which nothing is known, or what
// came before a recording that begins in the middle, fills nothing, either: nobody has seen it. Pure; one thread. No
// errors.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/access/access.h"
#include "analyzer/memory/objects.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/pointers/observations.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// Corrects `accesses`, which is complete, of the ops `calls`.
void find_scratch(const Trace& trace, const ObjectTable& table, const Observations& seen, const StepObjects& objects,
                  std::span<const std::uint32_t> calls, StepAccesses& accesses);

}  // namespace nimble::analyzer
