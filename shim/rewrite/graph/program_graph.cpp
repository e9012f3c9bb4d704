#include "shim/rewrite/graph/program_graph.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "shim/intercept/decode/copy.h"
#include "shim/rewrite/graph/graph_edges.h"

namespace nimble::shim {

namespace {

constexpr const char* kRefused = "the driver does not report what its nodes do";

}  // namespace

ProgramGraph::ProgramGraph(const GraphApi& driver, CUgraph graph) : driver_(driver), graph_(graph) {
  why_not_ = read();
}

// Sorts the nodes topologically: among those that could come next, the one that was created first.
std::string ProgramGraph::put_in_order(std::vector<CUgraphNode>& handles) {
  GraphEdges edges;
  if (std::string why = edges.read(driver_, graph_); !why.empty()) return why;
  std::unordered_map<CUgraphNode, std::size_t> place;
  for (std::size_t i = 0; i < handles.size(); ++i) place[handles[i]] = i;
  std::vector<std::vector<std::size_t>> next(handles.size());
  std::vector<std::size_t> waits_for(handles.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    next[place[edges.from(i)]].push_back(place[edges.to(i)]);
    ++waits_for[place[edges.to(i)]];
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < handles.size(); ++i)
    if (waits_for[i] == 0) ready.push(i);
  std::vector<CUgraphNode> sorted;
  std::vector<std::size_t> at(handles.size());
  while (!ready.empty()) {
    several_orders_ = several_orders_ || ready.size() > 1;
    const std::size_t node = ready.top();
    ready.pop();
    at[node] = sorted.size();
    sorted.push_back(handles[node]);
    for (const std::size_t other : next[node])
      if (--waits_for[other] == 0) ready.push(other);
  }
  if (sorted.size() != handles.size()) return "its edges have a cycle";
  before_.resize(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i)
    for (const std::size_t other : next[i]) before_[at[other]].push_back(at[i]);
  handles = std::move(sorted);
  return {};
}

std::string ProgramGraph::read() {
  std::size_t count = 0;
  if (driver_.cuGraphGetNodes_(graph_, nullptr, &count) != CUDA_SUCCESS) return "the driver does not report its nodes";
  std::vector<CUgraphNode> handles(count);
  if (count && driver_.cuGraphGetNodes_(graph_, handles.data(), &count) != CUDA_SUCCESS)
    return "the driver does not report its nodes";
  const std::vector<CUgraphNode> listed = handles;
  if (std::string why = put_in_order(handles); !why.empty()) return why;
  as_listed_ = handles == listed;
  for (std::size_t place = 0; place < handles.size(); ++place) {
    ProgramNode node;
    const CUgraphNode handle = node.handle = handles[place];
    node.place = place;
    if (driver_.cuGraphNodeGetType_(handle, &node.type) != CUDA_SUCCESS) return kRefused;
    if (node.type == CU_GRAPH_NODE_TYPE_EMPTY) {
      empty_.push_back(handle);
      continue;
    }
    if (std::string why = read(node); !why.empty()) return why;
    nodes_.push_back(node);
  }
  if (several_orders_) find_branches();
  if (!context_ && (driver_.cuCtxGetCurrent_(&context_) != CUDA_SUCCESS || !context_)) return "no context is current";
  return {};
}

void ProgramGraph::find_branches() {
  std::vector<std::uint32_t> index(before_.size(), kNone);  // by place; kNone for empty nodes
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) index[nodes_[i].place] = i;
  branches_.emplace();
  std::vector<std::size_t> open, seen(before_.size(), before_.size());
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    const std::size_t place = nodes_[i].place;
    open = before_[place];
    while (!open.empty()) {
      const std::size_t other = open.back();
      open.pop_back();
      if (seen[other] == place) continue;
      seen[other] = place;
      if (index[other] != kNone) {
        branches_->push_back({index[other], i});
      } else {
        open.insert(open.end(), before_[other].begin(), before_[other].end());
      }
    }
  }
}

std::string ProgramGraph::read(ProgramNode& node) {
  node.call.traced = node.call.has_stream = true;
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read_kernel(node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return read_copy(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_set(node);
    default:
      return "it holds a node that is not a kernel, copy or set";
  }
}

std::string ProgramGraph::read_kernel(ProgramNode& node) {
  Call& call = node.call;
  CUkernelNodeAttrValue value{};
  if (driver_.cuGraphKernelNodeGetAttribute_(node.handle, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
          CUDA_SUCCESS &&
      value.deviceUpdatableKernelNode.deviceUpdatable)
    return "it holds a kernel that the device may change";
  call.launch.cooperative =
      driver_.cuGraphKernelNodeGetAttribute_(node.handle, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS &&
      value.cooperative != 0;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  if (driver_.cuGraphKernelNodeGetParams_v2_(node.handle, &kernel) != CUDA_SUCCESS) return kRefused;
  if (context_known_ && kernel.ctx != context_) return "it uses several contexts";
  context_ = kernel.ctx;
  context_known_ = true;
  call.symbol = kKernelOfAGraph;
  call.kind = CallKind::launch;
  // Runtimes launch kernels by a handle that all contexts share: the one known from launches.
  call.launch.function = kernel.kern ? reinterpret_cast<CUfunction>(kernel.kern) : kernel.func;
  if (!call.launch.function) return "it holds a kernel without a function";
  call.launch.grid = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ};
  call.launch.block = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ};
  call.launch.shared_bytes = kernel.sharedMemBytes;
  call.launch.kernel_params = kernel.kernelParams;
  call.launch.extra = kernel.extra;
  return {};
}

std::string ProgramGraph::read_copy(ProgramNode& node) const {
  Call& call = node.call;
  CUDA_MEMCPY3D copy{};
  if (driver_.cuGraphMemcpyNodeGetParams_(node.handle, &copy) != CUDA_SUCCESS) return kRefused;
  if (!decode::between_memory(copy)) return "it copies from or to an array";
  if (copy.Depth > 1) return "it copies layers";
  call.symbol = kCopyOfAGraph;
  call.kind = CallKind::copy;
  decode::Copy2D::rows(call, copy, decode::box_dst_3d(copy), decode::box_src_3d(copy));
  // The copy carries what its source holds when it runs, which we cannot know now.
  call.transfer.device_source = true;
  return {};
}

std::string ProgramGraph::read_set(ProgramNode& node) const {
  Call& call = node.call;
  CUDA_MEMSET_NODE_PARAMS set{};
  if (driver_.cuGraphMemsetNodeGetParams_(node.handle, &set) != CUDA_SUCCESS) return kRefused;
  call.symbol = kSetOfAGraph;
  call.kind = CallKind::set;
  call.transfer.dst = {set.dst, set.pitch};
  call.transfer.width = set.width * set.elementSize;
  call.transfer.height = std::max<std::size_t>(set.height, 1);
  call.transfer.value = set.value;
  call.transfer.element = set.elementSize;
  return {};
}

}  // namespace nimble::shim
