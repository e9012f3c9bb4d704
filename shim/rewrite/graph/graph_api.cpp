#include "shim/rewrite/graph/graph_api.h"

namespace nimble::shim {

const char* GraphApi::load(CallContext& context) {
#define X(function)                                                                        \
  function##_ = reinterpret_cast<decltype(function##_)>(context.driver_symbol(#function)); \
  if (!function##_) return #function;
  NIMBLE_GRAPH_FUNCTIONS(X)
#undef X
#define X(function) function##_ = reinterpret_cast<decltype(function##_)>(context.driver_symbol(#function));
  NIMBLE_GRAPH_EDGE_FUNCTIONS(X)
  NIMBLE_GRAPH_OTHER_FUNCTIONS(X)
#undef X
  if (!cuGraphRemoveDependencies_v2_) cuGraphGetEdges_v2_ = nullptr;
  return nullptr;
}

}  // namespace nimble::shim
