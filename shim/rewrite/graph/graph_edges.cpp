#include "shim/rewrite/graph/graph_edges.h"

#include <algorithm>

namespace nimble::shim {

namespace {

// Whether a full edge, from the end of a node, can replace this one. A kernel after a programmatic edge may begin when
// its predecessor allows it to, or has ended, and itself waits for the end (griddepcontrol.wait), which after a full
// edge has no effect. But an edge from the beginning of a kernel may be there so that both run together.
bool may_stand_for_the_end(const CUgraphEdgeData& data) {
  if (data.to_port != 0) return false;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
  return data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
}

}  // namespace

CUresult GraphEdges::list(const GraphApi& driver, CUgraph graph) {
  const bool with_data = driver.cuGraphGetEdges_v2_ != nullptr;
  std::size_t count = 0;
  CUresult result = with_data ? driver.cuGraphGetEdges_v2_(graph, nullptr, nullptr, nullptr, &count)
                              : driver.cuGraphGetEdges_(graph, nullptr, nullptr, &count);
  if (result != CUDA_SUCCESS) return result;
  from_.assign(count, nullptr);
  to_.assign(count, nullptr);
  data_.assign(with_data ? count : 0, {});
  if (count == 0) return result;
  result = with_data ? driver.cuGraphGetEdges_v2_(graph, from_.data(), to_.data(), data_.data(), &count)
                     : driver.cuGraphGetEdges_(graph, from_.data(), to_.data(), &count);
  if (count < from_.size()) {
    from_.resize(count);
    to_.resize(count);
    data_.resize(with_data ? count : 0);
  }
  return result;
}

std::string GraphEdges::read(const GraphApi& driver, CUgraph graph) {
  const CUresult result = list(driver, graph);
  if (result == CUDA_ERROR_LOSSY_QUERY) return "its edges have data, which this driver does not report";
  if (result != CUDA_SUCCESS) return "the driver does not report its edges";
  if (!std::all_of(data_.begin(), data_.end(), may_stand_for_the_end)) return "it has an edge of an unknown kind";
  return {};
}

CUresult GraphEdges::remove(const GraphApi& driver, CUgraph graph) const {
  if (from_.empty()) return CUDA_SUCCESS;
  // The driver also identifies an edge by its data.
  return data_.empty()
             ? driver.cuGraphRemoveDependencies_(graph, from_.data(), to_.data(), from_.size())
             : driver.cuGraphRemoveDependencies_v2_(graph, from_.data(), to_.data(), data_.data(), from_.size());
}

}  // namespace nimble::shim
