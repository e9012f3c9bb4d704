// Graphs as structure: nodes and edges, made, copied, listed and destroyed. See graph.h.
#include "tests/simcuda/graph/graph.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/simcuda/driver/entry.h"

namespace simcuda {
namespace {

std::uint64_t next_uid = 1;

bool has_memory_nodes(CUgraph graph) {
  return std::any_of(graph->nodes.begin(), graph->nodes.end(), [](CUgraphNode node) {
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (node->child != nullptr && has_memory_nodes(node->child));
  });
}

void release_node(CUgraphNode node) {
  if (node->child != nullptr) {
    node->child->owner = nullptr;
    destroy_graph(node->child);
  }
  driver().nodes.release(node);
}

std::vector<Edge>::iterator find_edge(std::vector<Edge>& edges, CUgraphNode node) {
  return std::find_if(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.node == node; });
}

bool is_plain(const CUgraphEdgeData& data) {
  const CUgraphEdgeData plain{};
  return std::memcmp(&data, &plain, sizeof plain) == 0;
}

}  // namespace

GraphMemory::GraphMemory(std::uint64_t bytes, CUcontext context) {
  constexpr std::uint64_t kGranularity = 512;
  if (bytes > Memory::kTotal) return;
  block = driver().memory.allocate(BlockKind::kGraph, bytes, (bytes + kGranularity - 1) / kGranularity * kGranularity,
                                   context);
  if (block == nullptr) return;
  block->live = false;
  block->graph_memory = this;
}

GraphMemory::~GraphMemory() {
  if (block == nullptr) return;
  driver().tracking.forget(block->base, block->base + block->capacity);
  driver().memory.release(block);
}

CUgraphNode add_node(CUgraph graph, CUgraphNodeType type, Work&& work, const std::vector<Edge>& dependencies) {
  CUgraphNode node = driver().nodes.make();
  node->uid = next_uid++;
  node->graph = graph;
  node->type = type;
  node->work = std::move(work);
  node->dependencies = dependencies;
  for (const Edge& edge : dependencies) edge.node->dependents.push_back({node, edge.data});
  graph->nodes.push_back(node);
  return node;
}

CUgraph clone_graph(CUgraph graph, std::unordered_map<CUgraphNode, CUgraphNode>* mapping) {
  std::unordered_map<CUgraphNode, CUgraphNode> own;
  auto& clones = mapping != nullptr ? *mapping : own;
  CUgraph copy = driver().graphs.make();
  for (CUgraphNode node : graph->nodes) {
    CUgraphNode clone = driver().nodes.make();
    *clone = *node;
    clone->uid = next_uid++;
    clone->graph = copy;
    clone->cloned_from = node->uid;
    clone->parameters.clear();
    if (node->child != nullptr) {
      clone->child = clone_graph(node->child, mapping);
      clone->child->owner = clone;
    }
    copy->nodes.push_back(clone);
    clones[node] = clone;
  }
  for (CUgraphNode clone : copy->nodes) {
    for (Edge& edge : clone->dependencies) edge.node = clones[edge.node];
    for (Edge& edge : clone->dependents) edge.node = clones[edge.node];
  }
  return copy;
}

void destroy_graph(CUgraph graph) {
  for (CUgraphNode node : graph->nodes) release_node(node);
  driver().graphs.release(graph);
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL(cuGraphCreate, kInit, (CUgraph * graph, unsigned flags), (graph, flags)) {
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *graph = call.driver.graphs.make();
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphDestroy, kInit, (CUgraph graph), (graph)) {
  if (!valid(graph) || graph->owner != nullptr || graph->capturing_into) return CUDA_ERROR_INVALID_VALUE;
  destroy_graph(graph);
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphClone, kInit, (CUgraph * clone, CUgraph graph), (clone, graph)) {
  if (clone == nullptr || !valid(graph)) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory_nodes(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  *clone = clone_graph(graph);
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphNodeFindInClone, kInit, (CUgraphNode * found, CUgraphNode original, CUgraph clone),
         (found, original, clone)) {
  if (found == nullptr || !valid(original) || !valid(clone)) return CUDA_ERROR_INVALID_VALUE;
  const auto at = std::find_if(clone->nodes.begin(), clone->nodes.end(),
                               [&](CUgraphNode node) { return node->cloned_from == original->uid; });
  if (at == clone->nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  *found = *at;
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphDestroyNode, kInit, (CUgraphNode node), (node)) {
  if (!valid(node) || has_memory_nodes(node->graph)) return CUDA_ERROR_INVALID_VALUE;
  for (const Edge& edge : node->dependencies) {
    auto& edges = edge.node->dependents;
    edges.erase(find_edge(edges, node));
  }
  for (const Edge& edge : node->dependents) {
    auto& edges = edge.node->dependencies;
    edges.erase(find_edge(edges, node));
  }
  std::erase(node->graph->nodes, node);
  release_node(node);
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphNodeGetType, kInit, (CUgraphNode node, CUgraphNodeType* type), (node, type)) {
  if (!valid(node) || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

// --- Lists. With no place to put them, only their number is told. ---

static CUresult list(const std::vector<CUgraphNode>& nodes, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? nodes[i] : nullptr;
    *count = std::min(*count, nodes.size());
  } else {
    *count = nodes.size();
  }
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphGetNodes, kInit, (CUgraph graph, CUgraphNode* nodes, size_t* count), (graph, nodes, count)) {
  return valid(graph) ? list(graph->nodes, nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuGraphGetRootNodes, kInit, (CUgraph graph, CUgraphNode* nodes, size_t* count), (graph, nodes, count)) {
  if (!valid(graph)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> roots;
  std::copy_if(graph->nodes.begin(), graph->nodes.end(), std::back_inserter(roots),
               [](CUgraphNode node) { return node->dependencies.empty(); });
  return list(roots, nodes, count);
}

// `plain`: the caller has no room for what an edge says beside its ends, so such edges are an error.
static CUresult list_edges(const std::vector<Edge>& edges, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count,
                           bool plain) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr && (plain || data == nullptr) &&
      !std::all_of(edges.begin(), edges.end(), [](const Edge& edge) { return is_plain(edge.data); })) {
    return CUDA_ERROR_LOSSY_QUERY;
  }
  std::vector<CUgraphNode> nodes;
  for (const Edge& edge : edges) nodes.push_back(edge.node);
  if (out != nullptr && data != nullptr) {
    for (std::size_t i = 0; i < *count && i < edges.size(); ++i) data[i] = edges[i].data;
  }
  return list(nodes, out, count);
}

SIM_CALL(cuGraphNodeGetDependencies, kInit, (CUgraphNode node, CUgraphNode* out, size_t* count), (node, out, count)) {
  return valid(node) ? list_edges(node->dependencies, out, nullptr, count, true) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphNodeGetDependencies_v2, kInit,
         (CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count), (node, out, data, count)) {
  return valid(node) ? list_edges(node->dependencies, out, data, count, false) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphNodeGetDependentNodes, kInit, (CUgraphNode node, CUgraphNode* out, size_t* count), (node, out, count)) {
  return valid(node) ? list_edges(node->dependents, out, nullptr, count, true) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphNodeGetDependentNodes_v2, kInit,
         (CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count), (node, out, data, count)) {
  return valid(node) ? list_edges(node->dependents, out, data, count, false) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                          std::size_t* count) {
  if (!valid(graph) || count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::size_t total = 0;
  for (CUgraphNode node : graph->nodes) {
    for (const Edge& edge : node->dependents) {
      if (from != nullptr && total < *count) {
        if (data == nullptr && !is_plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
        from[total] = node;
        to[total] = edge.node;
        if (data != nullptr) data[total] = edge.data;
      }
      ++total;
    }
  }
  if (from != nullptr) {
    for (std::size_t i = total; i < *count; ++i) from[i] = to[i] = nullptr;
    total = std::min(total, *count);
  }
  *count = total;
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphGetEdges, kInit, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count),
         (graph, from, to, count)) {
  return get_edges(graph, from, to, nullptr, count);
}
SIM_CALL(cuGraphGetEdges_v2, kInit,
         (CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count),
         (graph, from, to, data, count)) {
  return get_edges(graph, from, to, data, count);
}

// --- Edges ---

static CUresult check_ends(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  if (!valid(graph) || (count != 0 && (from == nullptr || to == nullptr))) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (!valid(from[i]) || !valid(to[i]) || from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

static CUresult add_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                          std::size_t count) {
  if (const CUresult error = check_ends(graph, from, to, count)) return error;
  for (std::size_t i = 0; i < count; ++i) {  // all or none
    if (find_edge(to[i]->dependencies, from[i]) != to[i]->dependencies.end()) return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
    to[i]->dependencies.push_back({from[i], edge});
    from[i]->dependents.push_back({to[i], edge});
  }
  return CUDA_SUCCESS;
}

static CUresult remove_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                             std::size_t count) {
  if (const CUresult error = check_ends(graph, from, to, count)) return error;
  for (std::size_t i = 0; i < count; ++i) {  // an edge is one with just this data
    const auto found = find_edge(to[i]->dependencies, from[i]);
    const CUgraphEdgeData wanted = data != nullptr ? data[i] : CUgraphEdgeData{};
    if (found == to[i]->dependencies.end() || std::memcmp(&found->data, &wanted, sizeof wanted) != 0)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    to[i]->dependencies.erase(find_edge(to[i]->dependencies, from[i]));
    from[i]->dependents.erase(find_edge(from[i]->dependents, to[i]));
  }
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphAddDependencies, kInit, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
         (graph, from, to, count)) {
  return add_edges(graph, from, to, nullptr, count);
}
SIM_CALL(cuGraphAddDependencies_v2, kInit,
         (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count),
         (graph, from, to, data, count)) {
  return add_edges(graph, from, to, data, count);
}
SIM_CALL(cuGraphRemoveDependencies, kInit,
         (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count), (graph, from, to, count)) {
  return remove_edges(graph, from, to, nullptr, count);
}
SIM_CALL(cuGraphRemoveDependencies_v2, kInit,
         (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count),
         (graph, from, to, data, count)) {
  return remove_edges(graph, from, to, data, count);
}

SIM_CALL(cuGraphDebugDotPrint, kInit, (CUgraph graph, const char* path, unsigned flags), (graph, path, flags)) {
  if (!valid(graph) || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file, "digraph simcuda {\n");
  for (CUgraphNode node : graph->nodes) {
    std::fprintf(file, "  n%llu [label=\"%d %s\"];\n", static_cast<unsigned long long>(node->uid), node->type,
                 node->work.name);
    for (const Edge& edge : node->dependents) {
      std::fprintf(file, "  n%llu -> n%llu;\n", static_cast<unsigned long long>(node->uid),
                   static_cast<unsigned long long>(edge.node->uid));
    }
  }
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
