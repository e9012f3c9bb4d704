// Graphs, their nodes, and executable graphs. Guarded by the driver's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/simcuda/driver/objects.h"
#include "tests/simcuda/engine/work.h"

namespace simcuda {

struct Edge {
  CUgraphNode node;
  CUgraphEdgeData data;
};

// Memory of an allocation node: its addresses belong to all nodes and steps that allocate or free it.
class GraphMemory : public std::enable_shared_from_this<GraphMemory> {
 public:
  GraphMemory(std::uint64_t bytes, CUcontext context);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  Block* block = nullptr;  // null where memory is used up
};

using LaunchAttributes = std::map<int, CUlaunchAttributeValue>;

}  // namespace simcuda

struct CUgraphNode_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'09;
  std::uint64_t tag = 0;
  std::uint64_t uid = 0;  // of this node, and of no other that ever had the same address
  CUgraph graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  simcuda::Work work;
  std::vector<simcuda::Edge> dependencies, dependents;

  // As the program gave them, to be given back.
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUcontext context = nullptr;
  std::vector<void*> parameters;  // what kernelParams points to
  simcuda::LaunchAttributes attributes;
  CUgraph child = nullptr;
  std::shared_ptr<simcuda::GraphMemory> memory;
  CUmemPoolProps pool_props{};
  std::vector<CUmemAccessDesc> access;

  std::uint64_t cloned_from = 0;  // the uid of that node
};

struct CUgraph_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'0a;
  std::uint64_t tag = 0;
  std::vector<CUgraphNode> nodes;  // in the order in which they were added
  CUgraphNode owner = nullptr;     // the child graph node that holds it
  bool capturing_into = false;
};

struct CUgraphExec_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'0b;
  std::uint64_t tag = 0;
  struct Step {
    simcuda::Work work;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::uint64_t node_uid = 0;
    bool enabled = true;
    std::vector<std::uint32_t> after;  // steps before this one that it follows
    std::uint32_t followers = 0;
    simcuda::LaunchAttributes attributes;
    std::shared_ptr<simcuda::GraphMemory> memory;
  };
  unsigned long long flags = 0;
  CUcontext context = nullptr;
  std::vector<Step> steps;                                   // in an order that respects the edges
  std::unordered_map<std::uint64_t, std::uint32_t> step_of;  // by a node's uid
  CUgraph source = nullptr;                                  // a clone: what a capture of a launch adds as a child
  simcuda::Tail tail;                                        // a graph never runs beside itself
  std::vector<std::uint32_t> chains;
  std::vector<simcuda::Tail> scratch;  // of a launch
};

namespace simcuda {

CUgraphNode add_node(CUgraph graph, CUgraphNodeType type, Work&& work, const std::vector<Edge>& dependencies);
CUgraph clone_graph(CUgraph graph, std::unordered_map<CUgraphNode, CUgraphNode>* mapping = nullptr);
void destroy_graph(CUgraph graph);
void destroy_exec(CUgraphExec exec);
// Null where the graph has a cycle, or a node that cannot run.
CUgraphExec instantiate(CUgraph graph, CUcontext context, unsigned long long flags, CUgraphNode* error_node,
                        CUresult& error);
CUresult launch_graph(CUgraphExec exec, CUstream stream);

// Fills in what a node says about itself, from its work.
void describe_copy(CUgraphNode node);
void describe_set(CUgraphNode node);

}  // namespace simcuda
