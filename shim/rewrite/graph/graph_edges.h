// The edges of a graph, with the data that drivers since 12.3 have on them: what a node waits for may be less than the
// end of the one before, as between launches that programmatic dependent launch lets overlap.
//
// In a graph of ours every edge stands for the end of a node. That is more order than such an edge gives, and all that
// it gives. What an edge may say beside that is not known, and such graphs are left alone. One thread.
#pragma once

#include <string>
#include <vector>

#include "shim/rewrite/graph/graph_api.h"

namespace nimble::shim {

class GraphEdges {
 public:
  // Why they cannot be read, or are of a kind that is not known; empty where all is well.
  std::string read(const GraphApi& driver, CUgraph graph);
  // Takes those that were read away from the graph.
  CUresult remove(const GraphApi& driver, CUgraph graph) const;

  std::size_t size() const { return from_.size(); }
  CUgraphNode from(std::size_t i) const { return from_[i]; }
  CUgraphNode to(std::size_t i) const { return to_[i]; }

 private:
  CUresult list(const GraphApi& driver, CUgraph graph);

  std::vector<CUgraphNode> from_, to_;
  std::vector<CUgraphEdgeData> data_;  // empty where the driver knows of none
};

}  // namespace nimble::shim
