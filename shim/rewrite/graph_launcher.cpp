#include "shim/rewrite/graph_launcher.h"

#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "nimble/internal/process/not_cancelled.h"
#include "shim/state/contexts.h"

namespace nimble::shim {

Answer GraphLauncher::launch(Call& call) {
  // Where it is captured it becomes a part of another, as the program has made it.
  if (uses_.captures.any() && uses_.captures.of(call)) {
    CapturedGraphs& captured = uses_.pool.graphs();
    if (!captured.keep(nullptr, call.graph.exec)) return CUDA_ERROR_OUT_OF_MEMORY;
    captured.shared(call.graph.exec);
    return std::nullopt;
  }
  const LiveGraphs::Shared graph = uses_.graphs.find(call.graph.exec);
  if (!graph) return std::nullopt;
  TransientMemory::Shared part;
  GraphRecordings::Use present;
  bool is_recorded = false;
  try {
    part = graph->transient(call.graph.exec, uses_.pool.graphs());
    if (!part && graph->passes()) return std::nullopt;
    present = uses_.recordings.present();
    is_recorded = present && !present->is_over();
    is_recorded ? static_cast<void>(present->recorder().before(call)) : Recorder::skip();
  } catch (const std::bad_alloc&) {
    // Its memory may be gone, and the driver would launch it anyway.
    if (!graph->is_transient_known() || part) return CUDA_ERROR_OUT_OF_MEMORY;
    throw;
  }
  if (present && !is_recorded) uses_.recordings.end_if_full();
  GraphPair::Launch made = launch_with_memory(call, *graph, part.get());
  if (is_recorded) present->recorder().after(call, made.result);
  launches_.fetch_add(made.rewritten, std::memory_order_relaxed);
  if (!made.news.empty()) uses_.log.say(made.news);
  if (made.result == CUDA_SUCCESS) launched(call);
  return made.result;
}

// Must not cause a second launch, whatever fails here.
void GraphLauncher::launched(const Call& call) noexcept try {
  uses_.allocator.launched(call);
  uses_.dry_runs.submitted(call);
} catch (const std::exception& error) {
  uses_.log.failed(call, error);
}

// During a capture no event may be queried.
GraphPair::Launch GraphLauncher::launch_one(const Call& call, GraphPair& graph) {
  return uses_.onlookers.launch(call, graph, [&](bool looked_at) {
    const auto launch_it = [&] { return graph.launch(call.graph.exec, call.stream, !uses_.captures.any(), looked_at); };
    GraphPair::Launch made = launch_it();
    if (made.result == CUDA_ERROR_OUT_OF_MEMORY &&
        uses_.memory_return.give_back(call)) {  // as for calls that pass to the driver
      if (GraphPair::Launch again = launch_it(); again.result == CUDA_SUCCESS) made = std::move(again);  // answered
    }
    return made;
  });
}

// Whatever happens, never launches without the memory that the graph needs.
GraphPair::Launch GraphLauncher::launch_with_memory(const Call& call, GraphPair& graph, TransientMemory::Part* part) {
  if (!part) return launch_one(call, graph);
  TransientMemory& transient = uses_.pool.transient();
  GraphPair::Launch made;
  made.result = CUDA_ERROR_OUT_OF_MEMORY;
  const auto try_once = [&] {
    const TransientMemory::Held held = transient.launch(*part);
    if (held.good()) made = launch_one(call, graph);
    return held.good();
  };
  constexpr std::chrono::seconds kPatience{30};
  constexpr std::chrono::milliseconds kBetween{1};
  const NotCancelled not_cancelled;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!try_once() && std::chrono::steady_clock::now() < end) {
    if (uses_.memory_return.give_back(call)) continue;
    if (transient.all(current_context()) == 0) break;  // others have none to release
    std::this_thread::sleep_for(kBetween);
  }
  if (made.result == CUDA_SUCCESS) tell_reserve(call, *part);
  return made;
}

// If memory runs out, it is not counted.
void GraphLauncher::tell_reserve(const Call& call, const TransientMemory::Part& part) noexcept try {
  CapturePool& pool = uses_.pool;
  pool.graphs().reserve().launched(part.place(), call.stream.key, part.in_driver(), pool.former().moment());
} catch (const std::bad_alloc&) {
}

std::optional<bool> GraphLauncher::may_launch(CUgraphExec exec, CUstream stream) const {
  const LiveGraphs::Shared graph = uses_.graphs.find(exec);
  if (!graph) return std::nullopt;
  return graph->made_in() == current_context() && (!uses_.captures.any() || !uses_.captures.of(stream));
}

}  // namespace nimble::shim
