// What a GraphSink tells of its graphs, and of the program's calls, to find who looks at the graphs' memory while they
// run.
#include <algorithm>
#include <chrono>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "shim/rewrite/graph_sink.h"
#include "shim/state/entry.h"

namespace nimble::shim {

// What its nodes name, whoever has allocated it; without what cuDNN has for itself, where nobody looks.
void GraphSink::names(GraphPair& graph, const GraphSchedule& found) {
  std::vector<MemoryRange> ranges;
  for (const TraceProbe::Range& range : found.memory) {
    const auto is_it = [&](const GraphSchedule::Written& each) { return each.range == range; };
    const bool written = !found.writes || std::ranges::any_of(*found.writes, is_it);
    if (range.bytes != 0 && !library_memory_.holds(range.address))
      ranges.push_back({range.address, range.address + range.bytes, written});
  }
  sort_and_merge(ranges);
  const bool variables =
      std::ranges::any_of(found.schedule.functions, [](const auto& function) { return !function.globals.empty(); });
  const bool is_known = found.why_not.empty() && found.unknown.empty() && !ranges.empty();
  onlookers_.uses(*graph.work(), ranges, variables, !is_known);
  graph.work()->is_known = is_known;
}

// The driver is about to have the call. Where its op must not run at the same time as graphs of ours, it waits for
// these, which are the program's own from then on.
void GraphSink::look(const Call& call) {
  if (!Onlookers::matters(call)) return;
  const std::shared_ptr<GraphPair> graph = call.kind == CallKind::graph_launch ? find(call.exec) : nullptr;
  Onlookers::Works met;
  onlookers_.passes(call, met, graph && graph->work()->is_known ? graph->work() : nullptr);
  if (met.empty()) return;
  // By one that is shown they are kept where it is told to them all.
  call.shown ? onlookers_.wait_for(met) : wait_for(met);
}

void GraphSink::wait_for(const Onlookers::Works& met) {
  onlookers_.wait_for(met);
  const std::shared_lock lock(graphs_mutex_);
  for (const auto& [exec, graph] : graphs_)
    if (met.has(graph->work().get()) && graph->keep("others touch its memory while it runs"))
      say("graph " + std::to_string(graph->number()) +
          " is the program's own: ops on another stream touch its memory, in no order with it");
}

// Launches one of the two graphs.
GraphPair::Launch GraphSink::launch(const Call& call, GraphPair& graph) {
  Onlookers::Works met;
  const std::optional<Onlookers::Launch> unseen =
      graph.is_kept() ? std::nullopt : onlookers_.begins(graph.work(), call.stream, {}, met);
  Onlookers::Passage passage;
  if (!unseen) {
    passage = onlookers_.comes(call, met, graph.work()->is_known ? graph.work() : nullptr);
    if (!met.empty()) wait_for(met);
  }
  // While anything is captured nobody may ask whether an event has happened.
  const auto launch_it = [&] {
    return graph.launch(call.exec, call.stream, captures_.load(std::memory_order_relaxed) == 0, !unseen);
  };
  GraphPair::Launch made = launch_it();
  if (made.result == CUDA_ERROR_OUT_OF_MEMORY && give_back(call)) {  // as for calls that are not answered
    if (GraphPair::Launch again = launch_it(); again.result == CUDA_SUCCESS) made = std::move(again);
  }
  if (unseen) {
    onlookers_.begun(graph.work(), *unseen, made.result == CUDA_SUCCESS, made.rewritten);
  } else {
    onlookers_.went(call, made.result, passage);
  }
  return made;
}

// The same with the memory there that goes while memory is short. Whatever happens, no launch is made without it.
// Graphs of the driver's own would wait for each other on the device; here the host waits until those before are
// through, but not for good, since they may wait for this thread.
GraphPair::Launch GraphSink::launch_with_memory(const Call& call, GraphPair& graph, TransientMemory::Part* part) {
  if (!part) return launch(call, graph);
  GraphPair::Launch made;
  made.result = CUDA_ERROR_OUT_OF_MEMORY;
  const auto try_once = [&] {
    const TransientMemory::Held held = pool_.transient().launch(*part);
    if (held.good()) made = launch(call, graph);
    return held.good();
  };
  const auto tell = [&] {
    if (made.result != CUDA_SUCCESS) return;
    try {
      pool_.reserve().launched(part->place(), call.stream.key, part->in_driver(), pool_.retirements());
    } catch (const std::bad_alloc&) {  // then it is not counted
    }
  };
  constexpr std::chrono::seconds kPatience{30};
  constexpr std::chrono::milliseconds kBetween{1};
  const NotCancelled not_cancelled;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!try_once() && std::chrono::steady_clock::now() < end) {
    if (give_back(call)) continue;
    if (pool_.transient().all(current_context()) == 0) break;  // none that others could give back
    std::this_thread::sleep_for(kBetween);
  }
  tell();
  return made;
}

}  // namespace nimble::shim
