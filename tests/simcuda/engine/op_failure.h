// One op that fails on demand, told by what it is, so that it is the same op by whichever call it is submitted.
// Guarded by the driver's mutex.
#pragma once

#include "tests/simcuda/driver/entry.h"

namespace simcuda {

struct Op;

// What the call answers that submits this work, on its own or as a part of a graph: CUDA_SUCCESS for all work but that
// which is to be refused. A call of its own uses the refusal up.
CUresult refusal(Call& call, const Work& work, bool in_graph);

// Whether the op faults instead of running; its context has the fault then.
bool faults(const Op& op);

void clear_op_failure();

}  // namespace simcuda
