// A graph of the program's, read from the driver: each node as the call that would do the same, in an order that the
// graph's edges leave. Where they leave several, as in a graph with branches of the program's own, the program is right
// with any of them: so it is with one, and with whatever computes the same as that one.
//
// why_not() tells of nodes that no call stands for. Refers to the graph, which must stay as it is meanwhile: parameters
// of kernels are the driver's. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/rewrite/graph/graph_api.h"

namespace nimble::shim {

struct ProgramNode {
  CUgraphNode handle = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::size_t place = 0;  // in the order of all nodes
  Call call;
};

class ProgramGraph {
 public:
  // The graph's context is taken to be the current one where no kernel of it tells.
  ProgramGraph(const GraphApi& driver, CUgraph graph);

  CUgraph handle() const { return graph_; }
  // Without empty nodes; and those.
  const std::vector<ProgramNode>& nodes() const { return nodes_; }
  const std::vector<CUgraphNode>& empty_nodes() const { return empty_; }
  // Where the edges leave several orders: pairs of nodes, indices into nodes(), of which the one must come before the
  // other, whether an edge says so or a path through empty nodes.
  const std::optional<std::vector<std::array<std::uint32_t, 2>>>& branches() const { return branches_; }
  CUcontext context() const { return context_; }
  // Whether that order is the one in which the driver lists them, which is that of their creation.
  bool in_order_of_creation() const { return as_listed_; }
  // Why it cannot be written anew; empty where it can.
  const std::string& why_not() const { return why_not_; }

 private:
  std::string read();
  std::string put_in_order(std::vector<CUgraphNode>& handles);
  void find_branches();
  std::string read(ProgramNode& node);
  std::string read_kernel(ProgramNode& node);
  std::string read_copy(ProgramNode& node) const;
  std::string read_set(ProgramNode& node) const;

  const GraphApi& driver_;
  const CUgraph graph_;
  std::vector<ProgramNode> nodes_;
  std::vector<CUgraphNode> empty_;
  std::optional<std::vector<std::array<std::uint32_t, 2>>> branches_;
  std::vector<std::vector<std::size_t>> before_;  // by place: places of the nodes that it has edges from
  bool several_orders_ = false;
  CUcontext context_ = nullptr;
  bool context_known_ = false, as_listed_ = false;
  std::string why_not_;
};

}  // namespace nimble::shim
