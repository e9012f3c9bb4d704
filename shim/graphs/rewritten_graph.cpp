#include "shim/graphs/rewritten_graph.h"

#include <algorithm>

#include "shim/graphs/graph_edges.h"

namespace nimble::shim {

namespace {

std::string refusal(const char* what, CUresult result) {
  return std::string("the driver refuses ") + what + " (error " + std::to_string(result) + ")";
}

}  // namespace

RewrittenGraph::~RewrittenGraph() {
  if (exec_) driver_.cuGraphExecDestroy_(exec_);
}

std::string RewrittenGraph::put_in_order(CUgraph clone, const ProgramGraph& original, const Schedule& schedule,
                                         const std::vector<std::uint32_t>& of) const {
  GraphEdges edges;
  if (std::string why = edges.read(driver_, clone); !why.empty()) return why;
  CUresult result = edges.remove(driver_, clone);
  if (result != CUDA_SUCCESS) return refusal("to take its edges away", result);
  for (const CUgraphNode empty : original.empty_nodes()) {
    CUgraphNode node = nullptr;
    result = driver_.cuGraphNodeFindInClone_(&node, empty, clone);
    if (result == CUDA_SUCCESS) result = driver_.cuGraphDestroyNode_(node);
    if (result != CUDA_SUCCESS) return refusal("to take an empty node away", result);
  }

  int least = 0, greatest = 0;
  bool priorities = driver_.cuCtxGetStreamPriorityRange_(&least, &greatest) == CUDA_SUCCESS;
  const ScheduleSegment& segment = schedule.segments.front();
  std::vector<CUgraphNode> made(schedule.ops.size());
  for (const std::uint32_t op : segment.order) {
    const ProgramNode& node = original.nodes()[of[op]];
    result = driver_.cuGraphNodeFindInClone_(&made[op], node.handle, clone);
    if (result != CUDA_SUCCESS) return refusal("to find a node", result);
    if (!priorities || node.type != CU_GRAPH_NODE_TYPE_KERNEL || schedule.ops[op].priority == 0) continue;
    CUkernelNodeAttrValue value{};
    if (driver_.cuGraphKernelNodeGetAttribute_(node.handle, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) != CUDA_SUCCESS)
      value.priority = 0;
    // Less is more urgent.
    value.priority = std::max(greatest, value.priority - static_cast<int>(schedule.ops[op].priority));
    priorities =
        driver_.cuGraphKernelNodeSetAttribute_(made[op], CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) == CUDA_SUCCESS;
  }
  std::vector<CUgraphNode> from, to;
  for (const auto& [before, behind] : segment.edges) {
    from.push_back(made[before]);
    to.push_back(made[behind]);
  }
  if (!from.empty()) result = driver_.cuGraphAddDependencies_(clone, from.data(), to.data(), from.size());
  return result == CUDA_SUCCESS ? std::string() : refusal("other edges", result);
}

std::string RewrittenGraph::build(const ProgramGraph& original, const Schedule& schedule,
                                  const std::vector<std::uint32_t>& of) {
  CUgraph clone = nullptr;
  CUresult result = driver_.cuGraphClone_(&clone, original.handle());
  if (result != CUDA_SUCCESS) return refusal("to clone it", result);
  std::string why = put_in_order(clone, original, schedule, of);
  // Drivers before 11.7 do not know the flag.
  for (const unsigned flags : {unsigned{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY}, 0u}) {
    if (!why.empty() || exec_) break;
    result = driver_.cuGraphInstantiateWithFlags_(&exec_, clone, flags);
    if (result != CUDA_SUCCESS) exec_ = nullptr;
  }
  if (why.empty() && !exec_) why = refusal("to make it executable", result);
  driver_.cuGraphDestroy_(clone);
  return why;
}

}  // namespace nimble::shim
