// The edges of a graph, with the data that drivers since 12.3 attach to them: a node may wait for less than its
// predecessor's end, as with programmatic dependent launch, which lets launches overlap.
//
// In our graphs every edge waits for a node's end. That is more order than a programmatic edge gives, and includes it.
// Edges may say things that we do not know; we leave such graphs alone. One thread.
#pragma once

#include <string>
#include <vector>

#include "shim/rewrite/graph/graph_api.h"

namespace nimble::shim {

class GraphEdges {
 public:
  // Why they cannot be read, or are of an unknown kind; empty on success.
  std::string read(const GraphApi& driver, CUgraph graph);
  // Removes the edges that were read from the graph.
  CUresult remove(const GraphApi& driver, CUgraph graph) const;

  std::size_t size() const { return from_.size(); }
  CUgraphNode from(std::size_t i) const { return from_[i]; }
  CUgraphNode to(std::size_t i) const { return to_[i]; }

 private:
  CUresult list(const GraphApi& driver, CUgraph graph);

  std::vector<CUgraphNode> from_, to_;
  std::vector<CUgraphEdgeData> data_;  // empty if the driver does not know edge data
};

}  // namespace nimble::shim
