// Which work accesses the memory of the program's graphs while these run in Nimble's order
// (replayer/onlookers/onlookers.h). What graphs touch is told, and what the program's calls touch; where an op must not
// run at the same time as a graph, it waits for that, which is the program's own from then on.
//
// Owns what is known of both; the graphs' table hears of graphs that are kept. No lock of its own is held while the
// driver is called, or anybody waits. Any thread.
#pragma once

#include <cuda.h>

#include <optional>
#include <span>

#include "nimble/internal/call.h"
#include "replayer/onlookers/onlookers.h"
#include "shim/rewrite/graph/graph_pair.h"
#include "shim/rewrite/live/live_graphs.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class GraphOnlookers {
 public:
  // What the references name must outlive it.
  GraphOnlookers(CallContext& context, LiveGraphs& graphs, const RewriteLog& log)
      : graphs_(graphs), log_(log), onlookers_(context) {}

  // --- The program's calls.

  // One is about to reach the driver.
  void comes(Call& call);
  // The driver has had it.
  void went(const Call& call, CUresult result) { onlookers_.passed(call, result); }

  // --- Graphs.

  // One that may be launched in our order. What its nodes touch: ranges by address, without overlap, and, if so,
  // variables. `is_known`: no more than that.
  void touches(GraphPair& graph, std::span<const MemoryRange> ranges, bool variables, bool is_known);
  // It is kept from now on, and nothing is known of it any more. What was launched of it may be running.
  void is_changed(GraphPair& graph);
  // It ends.
  void leave(GraphPair& graph) { onlookers_.leave(graph.work()); }
  // One of the two graphs is launched, by `launch(looked_at)`: looked_at where somebody may look meanwhile.
  template <class Launch>
  GraphPair::Launch launch(const Call& call, GraphPair& graph, const Launch& launch);

 private:
  void wait_for(const Onlookers::Works& met);

  LiveGraphs& graphs_;
  const RewriteLog& log_;
  Onlookers onlookers_;
};

template <class Launch>
GraphPair::Launch GraphOnlookers::launch(const Call& call, GraphPair& graph, const Launch& launch) {
  Onlookers::Works met;
  const std::optional<Onlookers::Launch> unseen =
      graph.is_kept() ? std::nullopt : onlookers_.begins(graph.work(), call.stream, {}, met);
  Onlookers::Passage passage;
  if (!unseen) {
    passage = onlookers_.comes(call, met, graph.work()->is_known ? graph.work() : nullptr);
    if (!met.empty()) wait_for(met);
  }
  GraphPair::Launch made = launch(!unseen);
  if (unseen) {
    onlookers_.begun(graph.work(), *unseen, made.result == CUDA_SUCCESS, made.rewritten);
  } else {
    onlookers_.went(call, made.result, passage);
  }
  return made;
}

}  // namespace nimble::shim
