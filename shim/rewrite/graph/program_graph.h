// One of the program's graphs, read from the driver: each node as the call that would do the same, in an order that the
// graph's edges allow. If they allow several, as in a graph with branches, the program is correct with any of them: so
// it is with one, and with whatever computes the same as that one.
//
// why_not() names nodes that no call can represent. Refers to the graph, which must stay unchanged meanwhile: the
// driver owns the kernels' parameters. One thread.
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
  // Assumes the current context for the graph if none of its kernels tells.
  ProgramGraph(const GraphApi& driver, CUgraph graph);

  CUgraph handle() const { return graph_; }
  // The nodes, without empty ones; and the empty ones.
  const std::vector<ProgramNode>& nodes() const { return nodes_; }
  const std::vector<CUgraphNode>& empty_nodes() const { return empty_; }
  // If the edges allow several orders: pairs of nodes, as indices into nodes(), in which the first must precede the
  // second, by an edge or by a path through empty nodes.
  const std::optional<std::vector<std::array<std::uint32_t, 2>>>& branches() const { return branches_; }
  CUcontext context() const { return context_; }
  // Whether that order is the one in which the driver lists them, which is that of their creation.
  bool in_order_of_creation() const { return as_listed_; }
  // Why it cannot be rewritten; empty if it can.
  const std::string& why_not() const { return why_not_; }

 private:
  std::string read();
  std::string put_in_order(std::vector<CUgraphNode>& handles);
  void find_branches();

  const GraphApi& driver_;
  const CUgraph graph_;
  std::vector<ProgramNode> nodes_;
  std::vector<CUgraphNode> empty_;
  std::optional<std::vector<std::array<std::uint32_t, 2>>> branches_;
  std::vector<std::vector<std::size_t>> before_;  // by place: the places of its predecessors
  bool several_orders_ = false;
  CUcontext context_ = nullptr;
  bool context_known_ = false, as_listed_ = false;
  std::string why_not_;
};

}  // namespace nimble::shim
