// What a node says it does, read from the structs of the API and written back to them. Under the driver's mutex.
#pragma once

#include "tests/simcuda/driver/entry.h"

namespace simcuda {

// Each fills in a node's work and what it gives back, and leaves the node alone where the description is wrong.
CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params);
CUresult set_copy(CUgraphNode node, const CUDA_MEMCPY3D& params);
CUresult set_set(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS& params);
CUresult set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS& params);
CUresult set_event(CUgraphNode node, CUevent event);

// Any of them, as the generic calls have it.
CUresult set_any(CUgraphNode node, const CUgraphNodeParams& params);

CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& params);

}  // namespace simcuda
