// A graph of the program's, with only as much of its order as its nodes need.
//
// The program's graph is cloned, since not every node can be made anew from what the driver tells of it, and the clone
// gets other edges. Owns its executable graph: the program's graph may change or go. Needs the graph's context
// current when it is built and destroyed. May be launched wherever the original may, but the driver does not keep the
// two from running at the same time. Not synchronised.
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

  // `schedule` is of one segment that holds all nodes: its op i is node[i]. Returns what the driver refuses; empty
  // where nothing.
  // `own_priorities`: the program's executable graph heeds those of its nodes, and not the one of the launch's stream.
  std::string build(const ProgramGraph& original, const Schedule& schedule, const std::vector<std::uint32_t>& node,
                    bool own_priorities);
  // Streams of which priority it may be launched on; nothing: of any.
  std::optional<int> priority() const { return priority_; }
  CUresult launch(CUstream stream) const { return driver_.cuGraphLaunch_(exec_, stream); }
  // Its executable graph goes, for good; a launch of it that runs does so to its end. Whether there was one.
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
