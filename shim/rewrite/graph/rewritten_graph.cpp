#include "shim/rewrite/graph/rewritten_graph.h"

#include <algorithm>
#include <utility>

#include "replayer/driver/result_name.h"
#include "shim/rewrite/graph/graph_edges.h"

namespace nimble::shim {

namespace {

std::string refusal(const char* what, CUresult result) {
  return std::string("the driver refuses ") + what + " (" + result_name(result) + ")";
}

}  // namespace

RewrittenGraph::~RewrittenGraph() { let_go(); }

bool RewrittenGraph::let_go() {
  return exec_ && driver_.cuGraphExecDestroy_(std::exchange(exec_, nullptr)) == CUDA_SUCCESS;
}

std::string RewrittenGraph::put_in_order(CUgraph clone, const ProgramGraph& original, const Schedule& schedule,
                                         const std::vector<std::uint32_t>& of, std::vector<CUgraphNode>& made) const {
  GraphEdges edges;
  if (std::string why = edges.read(driver_, clone); !why.empty()) return why;
  CUresult result = edges.remove(driver_, clone);
  if (result != CUDA_SUCCESS) return refusal("to remove its edges", result);
  for (const CUgraphNode empty : original.empty_nodes()) {
    CUgraphNode node = nullptr;
    result = driver_.cuGraphNodeFindInClone_(&node, empty, clone);
    if (result == CUDA_SUCCESS) result = driver_.cuGraphDestroyNode_(node);
    if (result != CUDA_SUCCESS) return refusal("to remove an empty node", result);
  }
  const ScheduleSegment& segment = schedule.segments.front();
  for (const std::uint32_t op : segment.order) {
    result = driver_.cuGraphNodeFindInClone_(&made[op], original.nodes()[of[op]].handle, clone);
    if (result != CUDA_SUCCESS) return refusal("to find a node", result);
  }
  std::vector<CUgraphNode> from, to;
  for (const auto& [before, after] : segment.edges) {
    from.push_back(made[before]);
    to.push_back(made[after]);
  }
  if (!from.empty()) result = driver_.cuGraphAddDependencies_(clone, from.data(), to.data(), from.size());
  return result == CUDA_SUCCESS ? std::string() : refusal("other edges", result);
}

// Whether nodes get priorities of their own: the schedule raises some above the others. If the program runs all of them
// at the priority of the launch's stream, the others get the one that they were captured with, which the stream must
// then have.
bool RewrittenGraph::raise(const ProgramGraph& original, const Schedule& schedule, const std::vector<std::uint32_t>& of,
                           const std::vector<CUgraphNode>& made, bool own_priorities) {
  const auto is_kernel = [&](std::uint32_t op) { return original.nodes()[of[op]].type == CU_GRAPH_NODE_TYPE_KERNEL; };
  const std::vector<std::uint32_t>& order = schedule.segments.front().order;
  const bool any = std::ranges::any_of(order, [&](auto op) { return is_kernel(op) && schedule.ops[op].priority != 0; });
  int least = 0, greatest = 0;
  if (!any || driver_.cuCtxGetStreamPriorityRange_(&least, &greatest) != CUDA_SUCCESS) return own_priorities;
  std::vector<int> before;
  for (const std::uint32_t op : order) {
    CUkernelNodeAttrValue value{};
    const CUgraphNode node = original.nodes()[of[op]].handle;
    if (is_kernel(op) &&
        driver_.cuGraphKernelNodeGetAttribute_(node, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) != CUDA_SUCCESS)
      return own_priorities;
    before.push_back(is_kernel(op) || before.empty() ? value.priority : before.back());
  }
  const auto first = static_cast<std::size_t>(std::ranges::find_if(order, is_kernel) - order.begin());
  if (!own_priorities && std::any_of(before.begin() + static_cast<std::ptrdiff_t>(first), before.end(),
                                     [&](int p) { return p != before[first]; }))
    return false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!is_kernel(order[i]) || schedule.ops[order[i]].priority == 0) continue;
    CUkernelNodeAttrValue value{};
    // Less is more urgent.
    value.priority = std::max(greatest, before[i] - static_cast<int>(schedule.ops[order[i]].priority));
    if (driver_.cuGraphKernelNodeSetAttribute_(made[order[i]], CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) !=
        CUDA_SUCCESS)
      return own_priorities;
  }
  if (!own_priorities) priority_ = before[first];
  return true;
}

std::string RewrittenGraph::build(const ProgramGraph& original, const Schedule& schedule,
                                  const std::vector<std::uint32_t>& of, bool own_priorities) {
  CUgraph clone = nullptr;
  CUresult result = driver_.cuGraphClone_(&clone, original.handle());
  if (result != CUDA_SUCCESS) return refusal("to clone it", result);
  std::vector<CUgraphNode> made(schedule.ops.size());
  std::string why = put_in_order(clone, original, schedule, of, made);
  const auto instantiate = [&](unsigned flags) {
    result = driver_.cuGraphInstantiateWithFlags_(&exec_, clone, flags);
    if (result != CUDA_SUCCESS) exec_ = nullptr;
  };
  if (why.empty() && raise(original, schedule, of, made, own_priorities))
    instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  // Drivers before 11.7 do not know the flag.
  if (why.empty() && !exec_) {
    priority_.reset();
    instantiate(0);
  }
  if (why.empty() && !exec_) why = refusal("to make it executable", result);
  driver_.cuGraphDestroy_(clone);
  return why;
}

}  // namespace nimble::shim
