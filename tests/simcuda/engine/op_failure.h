// One op that fails on demand, identified by its content, so that it is the same op whichever call submits it. Guarded
// by the driver's mutex.
#pragma once

#include "tests/simcuda/driver/entry.h"

namespace simcuda {

struct Op;

// The result of the call that submits this work, alone or in a graph: CUDA_SUCCESS except for the work to be refused.
// An individual call uses the refusal up.
CUresult refusal(Call& call, const Work& work, bool in_graph);

// Whether the op faults instead of running; its context has the fault then.
bool faults(const Op& op);

void clear_op_failure();

}  // namespace simcuda
