// One of the program's graphs, with only as much order as its nodes need.
//
// Clones the program's graph, since not every node can be recreated from what the driver reports, and replaces the
// clone's edges. Owns its executable graph: the program's graph may change or end. Needs the graph's context current
// when it is built and destroyed. May be launched wherever the original may, but the driver does not keep the two from
// running concurrently. Not synchronised.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/schedule.h"
#include "shim/rewrite/graph/graph_api.h"
#include "shim/rewrite/graph/program_graph.h"

namespace nimble::shim {

class RewrittenGraph {
 public:
  explicit RewrittenGraph(const GraphApi& driver) : driver_(driver) {}
  ~RewrittenGraph();
  RewrittenGraph(const RewrittenGraph&) = delete;
  RewrittenGraph& operator=(const RewrittenGraph&) = delete;

  // `schedule` has one segment that holds all nodes: its op i is node[i]. Returns what the driver refuses; empty on
  // success. `own_priorities`: the program's executable graph uses its nodes' priorities, not the launch stream's.
  std::string build(const ProgramGraph& original, const Schedule& schedule, const std::vector<std::uint32_t>& node,
                    bool own_priorities);
  // The priority of the streams that it may be launched on; nothing: any.
  std::optional<int> priority() const { return priority_; }
  CUresult launch(CUstream stream) const { return driver_.cuGraphLaunch_(exec_, stream); }
  // Destroys its executable graph for good; a launch in flight completes. Returns whether there was one.
  bool let_go();
  // The context is gone, and the graph with it.
  void abandon() { exec_ = nullptr; }

 private:
  std::string put_in_order(CUgraph clone, const ProgramGraph& original, const Schedule& schedule,
                           const std::vector<std::uint32_t>& node, std::vector<CUgraphNode>& made) const;
  bool raise(const ProgramGraph& original, const Schedule& schedule, const std::vector<std::uint32_t>& node,
             const std::vector<CUgraphNode>& made, bool own_priorities);

  const GraphApi& driver_;
  CUgraphExec exec_ = nullptr;
  std::optional<int> priority_;
};

}  // namespace nimble::shim
