// The driver functions by which graphs of the program's are read and made anew: real ones, never our wrappers. Filled
// once, then constant.
#pragma once

#include <cuda.h>

#include "nimble/call.h"

namespace nimble::shim {

// Each by its exact name, since shim/ sees all versions of cuda.h. cuGraphGetEdges is the one that does not tell of
// data on edges, and refuses where there is any.
// clang-format off
#define NIMBLE_GRAPH_FUNCTIONS(X)                                                                                \
  X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphNodeGetType) X(cuGraphKernelNodeGetParams_v2)                   \
  X(cuGraphMemcpyNodeGetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphKernelNodeGetAttribute)                   \
  X(cuGraphKernelNodeSetAttribute) X(cuGraphKernelNodeCopyAttributes) X(cuGraphCreate) X(cuGraphDestroy)         \
  X(cuGraphAddKernelNode_v2) X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode) X(cuGraphInstantiateWithFlags)      \
  X(cuGraphExecDestroy) X(cuGraphLaunch) X(cuCtxGetCurrent) X(cuCtxGetStreamPriorityRange)
// clang-format on

struct GraphApi {
#define X(function) decltype(&::function) function##_ = nullptr;
  NIMBLE_GRAPH_FUNCTIONS(X)
#undef X

  // Looks them up. Returns the first missing one's name, or null.
  const char* load(CallContext& context);
};

}  // namespace nimble::shim
