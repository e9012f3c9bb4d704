// Workspaces: memory that kernels keep intermediate results in, recognised by what the kernels do with it.
//
// A library gives such memory to its kernels for partial sums or counters. A store to it may go unseen (observed.h):
// the kernel may store what an earlier launch has left, or put back what was there. But memory that nothing has filled
// has nothing in it to read, and the same goes for memory that was only cleared, with all bytes alike, as counters
// begin and such kernels leave them. So if a launch was only seen to read an object, and nothing has written anything
// else to that object before, in the step or in the whole trace, the launch counts as writing to it: two such launches
// do not run at the same time.
//
// Nodes of a graph, which a recording holds as launches that did not run, only fill what captures have allocated: the
// program runs the graph before it uses that. Memory that the host can reach counts as filled, and so does memory whose
// origin was not recorded. Ops that nothing is known about fill nothing, and neither does what came before a recording
// that begins in the middle: it was not seen. Pure; one thread. No errors.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/access/access.h"
#include "analyzer/memory/objects.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/pointers/observations.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// Corrects `accesses`, complete otherwise, of the ops `calls`.
void find_workspace_hazards(const Trace& trace, const ObjectTable& table, const Observations& seen,
                            const StepObjects& objects, std::span<const std::uint32_t> calls, StepAccesses& accesses);

}  // namespace nimble::analyzer
