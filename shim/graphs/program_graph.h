// A graph of the program's, read from the driver: each node as the call that would do the same, in the one order that
// the graph's edges leave.
//
// A graph whose edges leave more than one order has branches of the program's own, and is left as it is: why_not() says
// so, as it does of nodes that no call stands for. Refers to the graph, which must stay as it is meanwhile: parameters
// of kernels are the driver's. One thread.
#pragma once

#include <string>
#include <vector>

#include "nimble/call.h"
#include "shim/graphs/graph_api.h"

namespace nimble::shim {

struct ProgramNode {
  CUgraphNode handle = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::size_t place = 0;  // in the order of all nodes
  Call call;
  // That of its type.
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
};

class ProgramGraph {
 public:
  // The graph's context is taken to be the current one where no kernel of it tells.
  ProgramGraph(const GraphApi& driver, CUgraph graph);

  // Without empty nodes.
  const std::vector<ProgramNode>& nodes() const { return nodes_; }
  CUcontext context() const { return context_; }
  // Whether that order is the one in which the driver lists them, which is that of their creation.
  bool in_order_of_creation() const { return as_listed_; }
  // Why it cannot be written anew; empty where it can.
  const std::string& why_not() const { return why_not_; }

 private:
  std::string read(CUgraph graph);
  std::string put_in_order(CUgraph graph, std::vector<CUgraphNode>& handles) const;
  std::string read(ProgramNode& node);

  const GraphApi& driver_;
  std::vector<ProgramNode> nodes_;
  CUcontext context_ = nullptr;
  bool context_known_ = false, as_listed_ = false;
  std::string why_not_;
};

}  // namespace nimble::shim
