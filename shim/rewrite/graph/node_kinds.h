// The kinds of nodes that a graph can be rewritten with, and each as the call that would do the same.
//
// No state. One thread; the driver owns a kernel's parameters, so the graph must stay unchanged while they are read.
#pragma once

#include <optional>
#include <string>

#include "nimble/internal/call.h"
#include "shim/rewrite/graph/graph_api.h"

namespace nimble::shim {

// Why there is no such call; empty if there is. `context`: that of a kernel; other nodes leave it empty.
std::string read_node(const GraphApi& driver, CUgraphNode node, CUgraphNodeType kind, Call& call,
                      std::optional<CUcontext>& context);
inline constexpr const char* kRefused = "the driver does not report what its nodes do";

}  // namespace nimble::shim
