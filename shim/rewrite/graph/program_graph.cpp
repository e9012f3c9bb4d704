#include "shim/rewrite/graph/program_graph.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "shim/rewrite/graph/graph_edges.h"
#include "shim/rewrite/graph/node_kinds.h"

namespace nimble::shim {

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
    std::optional<CUcontext> context;
    if (std::string why = read_node(driver_, handle, node.type, node.call, context); !why.empty()) return why;
    if (context && context_known_ && *context != context_) return "it uses several contexts";
    if (context) context_ = *context, context_known_ = true;
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

}  // namespace nimble::shim
