#include "shim/graphs/rewritten_graph.h"

#include <algorithm>

namespace nimble::shim {

namespace {

std::string refusal(const std::string& what, CUresult result) {
  return "the driver refuses " + what + " (error " + std::to_string(result) + ")";
}

}  // namespace

RewrittenGraph::~RewrittenGraph() {
  if (exec_) driver_.cuGraphExecDestroy_(exec_);
}

CUresult RewrittenGraph::add(CUgraph graph, const ProgramNode& node, CUcontext context,
                             const std::vector<CUgraphNode>& after, CUgraphNode* added) const {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUresult result = driver_.cuGraphAddKernelNode_v2_(added, graph, after.data(), after.size(), &node.kernel);
      return result == CUDA_SUCCESS ? driver_.cuGraphKernelNodeCopyAttributes_(*added, node.handle) : result;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return driver_.cuGraphAddMemcpyNode_(added, graph, after.data(), after.size(), &node.copy, context);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return driver_.cuGraphAddMemsetNode_(added, graph, after.data(), after.size(), &node.set, context);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // ProgramGraph lets no other through
  }
}

std::string RewrittenGraph::build(const ProgramGraph& original, const Schedule& schedule,
                                  const std::vector<std::uint32_t>& of) {
  const ScheduleSegment& segment = schedule.segments.front();
  std::vector<std::vector<std::uint32_t>> before(schedule.ops.size());
  for (const auto& [from, to] : segment.edges) before[to].push_back(from);
  int least = 0, greatest = 0;
  bool priorities = driver_.cuCtxGetStreamPriorityRange_(&least, &greatest) == CUDA_SUCCESS;

  CUgraph graph = nullptr;
  CUresult result = driver_.cuGraphCreate_(&graph, 0);
  if (result != CUDA_SUCCESS) return refusal("another graph", result);
  std::string refused;
  std::vector<CUgraphNode> made(schedule.ops.size()), after;
  for (const std::uint32_t op : segment.order) {
    const ProgramNode& node = original.nodes()[of[op]];
    after.clear();
    for (const std::uint32_t other : before[op]) after.push_back(made[other]);
    result = add(graph, node, original.context(), after, &made[op]);
    if (result != CUDA_SUCCESS) {
      refused = refusal(std::string(node.call.symbol) + ", node " + std::to_string(of[op]), result);
      break;
    }
    if (!priorities || node.type != CU_GRAPH_NODE_TYPE_KERNEL || schedule.ops[op].priority == 0) continue;
    CUkernelNodeAttrValue value{};
    if (driver_.cuGraphKernelNodeGetAttribute_(node.handle, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) != CUDA_SUCCESS)
      value.priority = 0;
    // Less is more urgent.
    value.priority = std::max(greatest, value.priority - static_cast<int>(schedule.ops[op].priority));
    priorities =
        driver_.cuGraphKernelNodeSetAttribute_(made[op], CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) == CUDA_SUCCESS;
  }
  // Drivers before 11.7 do not know the flag.
  if (result == CUDA_SUCCESS && driver_.cuGraphInstantiateWithFlags_(
                                    &exec_, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != CUDA_SUCCESS) {
    exec_ = nullptr;
    result = driver_.cuGraphInstantiateWithFlags_(&exec_, graph, 0);
    if (result != CUDA_SUCCESS) {
      exec_ = nullptr;
      refused = refusal("to make it executable", result);
    }
  }
  driver_.cuGraphDestroy_(graph);
  return refused;
}

}  // namespace nimble::shim
