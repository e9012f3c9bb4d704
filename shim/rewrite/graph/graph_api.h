// The driver functions with which we read and rebuild the program's graphs: the real ones, never our wrappers. Filled
// once, then constant.
#pragma once

#include <cuda.h>

#include "nimble/internal/call.h"

namespace nimble::shim {

// Each by its exact name, since shim/ sees all versions of cuda.h.
// clang-format off
#define NIMBLE_GRAPH_FUNCTIONS(X)                                                                                \
  X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphNodeGetType) X(cuGraphKernelNodeGetParams_v2)                   \
  X(cuGraphMemcpyNodeGetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphKernelNodeGetAttribute)                   \
  X(cuGraphKernelNodeSetAttribute) X(cuGraphClone) X(cuGraphNodeFindInClone) X(cuGraphDestroyNode)               \
  X(cuGraphAddDependencies) X(cuGraphRemoveDependencies) X(cuGraphDestroy) X(cuGraphInstantiateWithFlags)        \
  X(cuGraphExecDestroy) X(cuGraphLaunch) X(cuCtxGetCurrent) X(cuCtxGetStreamPriorityRange)
// Since 12.3: edges with data. The functions above do not handle data, and refuse if there is some.
#define NIMBLE_GRAPH_EDGE_FUNCTIONS(X) X(cuGraphGetEdges_v2) X(cuGraphRemoveDependencies_v2)
// Each optional.
#define NIMBLE_GRAPH_OTHER_FUNCTIONS(X) X(cuGraphExecGetFlags) X(cuThreadExchangeStreamCaptureMode)
// clang-format on

struct GraphApi {
#define X(function) decltype(&::function) function##_ = nullptr;
  NIMBLE_GRAPH_FUNCTIONS(X)
  NIMBLE_GRAPH_EDGE_FUNCTIONS(X)   // both, or both null
  NIMBLE_GRAPH_OTHER_FUNCTIONS(X)  // or null
#undef X

  // Looks them up. Returns the name of the first required one that is missing, or null.
  const char* load(CallContext& context);
};

}  // namespace nimble::shim
