#include "replayer/submit/segment_graph.h"

#include <algorithm>

#include "replayer/submit/submit.h"

namespace nimble {

SegmentGraph::~SegmentGraph() {
  if (exec_) driver_->cuGraphExecDestroy_(exec_);
  if (graph_) driver_->cuGraphDestroy_(graph_);
}

SegmentGraph::SegmentGraph(SegmentGraph&& other) noexcept
    : driver_(other.driver_),
      context_(other.context_),
      graph_(other.graph_),
      exec_(other.exec_),
      first_(other.first_),
      nodes_(std::move(other.nodes_)),
      events_(std::move(other.events_)),
      scratch_(std::move(other.scratch_)) {
  other.abandon();
}

CUresult SegmentGraph::add_node(const Schedule& schedule, const OpMatch& live, std::uint32_t index,
                                const std::vector<CUgraphNode>& after) {
  CUgraphNode* const node = &nodes_[index - first_];
  switch (schedule.ops[index].kind) {
    case CallKind::launch: {
      const CUDA_KERNEL_NODE_PARAMS params = kernel_node(schedule, live, index, scratch_);
      return driver_->cuGraphAddKernelNode_(node, graph_, after.data(), after.size(), &params);
    }
    case CallKind::copy: {
      const CUDA_MEMCPY3D params = copy_node(schedule, live, index);
      return driver_->cuGraphAddMemcpyNode_(node, graph_, after.data(), after.size(), &params, context_);
    }
    case CallKind::set: {
      const CUDA_MEMSET_NODE_PARAMS params = set_node(live, index);
      return driver_->cuGraphAddMemsetNode_(node, graph_, after.data(), after.size(), &params, context_);
    }
    case CallKind::event_record:
      events_[index - first_] = live.live(index).event;
      return driver_->cuGraphAddEventRecordNode_(node, graph_, after.data(), after.size(), live.live(index).event);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // the schedule's reader accepts no other kind
  }
}

// Whether the nodes now have priorities of their own. If the driver refuses they do without.
bool SegmentGraph::set_priorities(const Schedule& schedule, const ScheduleSegment& segment, CUstream stream) const {
  const auto has_one = [&](std::uint32_t index) { return schedule.ops[index].priority != 0; };
  if (std::none_of(segment.order.begin(), segment.order.end(), has_one)) return false;
  int least = 0, greatest = 0, base = 0;
  if (driver_->cuCtxGetStreamPriorityRange_(&least, &greatest) != CUDA_SUCCESS) return false;
  if (driver_->cuStreamGetPriority_(stream, &base) != CUDA_SUCCESS) return false;
  for (const std::uint32_t index : segment.order) {
    if (schedule.ops[index].kind != CallKind::launch) continue;
    CUkernelNodeAttrValue value{};
    value.priority = std::max(greatest, base - static_cast<int>(schedule.ops[index].priority));  // less is more urgent
    const CUgraphNode node = nodes_[index - first_];
    if (driver_->cuGraphKernelNodeSetAttribute_(node, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value) != CUDA_SUCCESS)
      return false;
  }
  return true;
}

CUresult SegmentGraph::build(const Schedule& schedule, const ScheduleSegment& segment, OpMatch& live, CUcontext context,
                             CUstream stream) {
  context_ = context;
  first_ = segment.first;
  nodes_.assign(segment.last - segment.first + 1, nullptr);
  events_.assign(nodes_.size(), nullptr);
  std::vector<std::vector<std::uint32_t>> before(nodes_.size());
  for (const auto& [from, to] : segment.edges) before[to - first_].push_back(from);
  CUresult result = driver_->cuGraphCreate_(&graph_, 0);
  std::vector<CUgraphNode> after;
  for (const std::uint32_t index : segment.order) {
    if (result != CUDA_SUCCESS) return result;
    after.clear();
    for (const std::uint32_t op : before[index - first_]) after.push_back(nodes_[op - first_]);
    result = add_node(schedule, live, index, after);
  }
  if (result != CUDA_SUCCESS) return result;
  // Drivers before 11.7 do not know the flag.
  if (!set_priorities(schedule, segment, stream) ||
      driver_->cuGraphInstantiateWithFlags_(&exec_, graph_, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) !=
          CUDA_SUCCESS)
    result = driver_->cuGraphInstantiateWithFlags_(&exec_, graph_, 0);
  if (result != CUDA_SUCCESS) return result;
  for (const std::uint32_t index : segment.order) live.bound(index);
  return CUDA_SUCCESS;
}

CUresult SegmentGraph::record_instead(std::uint32_t index, CUevent event) {
  const std::uint32_t node = index - first_;
  const CUresult result = driver_->cuGraphExecEventRecordNodeSetEvent_(exec_, nodes_[node], event);
  if (result == CUDA_SUCCESS) events_[node] = event;
  return result;
}

bool SegmentGraph::records(CUevent event) const {
  return event && std::find(events_.begin(), events_.end(), event) != events_.end();
}

CUresult SegmentGraph::let_go(CUevent event, CUevent stand_in) {
  CUresult result = CUDA_SUCCESS;
  for (std::uint32_t node = 0; node < events_.size(); ++node) {
    if (events_[node] != event) continue;
    const CUresult mine = record_instead(first_ + node, stand_in);
    if (result == CUDA_SUCCESS) result = mine;
  }
  return result;
}

CUresult SegmentGraph::patch(const Schedule& schedule, OpMatch& live, std::uint32_t index) {
  const CUgraphNode node = nodes_[index - first_];
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  switch (schedule.ops[index].kind) {
    case CallKind::launch: {
      const CUDA_KERNEL_NODE_PARAMS params = kernel_node(schedule, live, index, scratch_);
      result = driver_->cuGraphExecKernelNodeSetParams_(exec_, node, &params);
      break;
    }
    case CallKind::copy: {
      const CUDA_MEMCPY3D params = copy_node(schedule, live, index);
      result = driver_->cuGraphExecMemcpyNodeSetParams_(exec_, node, &params, context_);
      break;
    }
    case CallKind::set: {
      const CUDA_MEMSET_NODE_PARAMS params = set_node(live, index);
      result = driver_->cuGraphExecMemsetNodeSetParams_(exec_, node, &params, context_);
      break;
    }
    case CallKind::event_record:
      result = record_instead(index, live.live(index).event);
      break;
    default:
      break;
  }
  if (result == CUDA_SUCCESS) live.bound(index);
  return result;
}

}  // namespace nimble
