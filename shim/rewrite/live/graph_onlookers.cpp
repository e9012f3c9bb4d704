#include "shim/rewrite/live/graph_onlookers.h"

#include <memory>
#include <string>

namespace nimble::shim {

void GraphOnlookers::comes(Call& call) {
  if (onlookers_.passes_unseen(call) || !Onlookers::matters(call)) return;
  const LiveGraphs::Shared graph = call.kind == CallKind::graph_launch ? graphs_.find(call.graph.exec) : nullptr;
  Onlookers::Works met;
  onlookers_.passes(call, met, graph && graph->work()->is_known ? graph->work() : nullptr);
  if (met.empty()) return;
  // By one that is shown they are kept where it is told to them all.
  call.shown ? onlookers_.wait_for(met) : wait_for(met);
}

void GraphOnlookers::wait_for(const Onlookers::Works& met) {
  onlookers_.wait_for(met);
  graphs_.each([&](GraphPair& graph) {
    if (met.has(graph.work().get()) && graph.keep("others touch its memory while it runs"))
      log_.say(
          "graph " + std::to_string(graph.number()) +
          ": the program's own is launched from now on: ops on another stream touch its memory, unordered with it");
  });
}

void GraphOnlookers::touches(GraphPair& graph, std::span<const MemoryRange> ranges, bool variables, bool is_known) {
  onlookers_.uses(graph.work(), ranges, variables, !is_known);
  graph.work()->is_known = is_known;
}

void GraphOnlookers::is_changed(GraphPair& graph) {
  onlookers_.uses(graph.work(), {}, false, /*anything=*/false);
  graph.work()->is_known = false;
}

}  // namespace nimble::shim
