#include "shim/rewrite/live/live_graphs.h"

#include <string>

namespace nimble::shim {

LiveGraphs::Shared LiveGraphs::find(CUgraphExec exec) const {
  const std::shared_lock lock(mutex_);
  const auto found = graphs_.find(exec);
  return found == graphs_.end() ? nullptr : found->second;
}

void LiveGraphs::tell(const Call& call) {
  const std::shared_lock lock(mutex_);
  for (const auto& [exec, graph] : graphs_) tell(*graph, call);
  if (!any_analysis()) return;
  const std::lock_guard missed_lock(missed_mutex_);
  missed_.push_back(call);
}

void LiveGraphs::tell(GraphPair& graph, const Call& call) const {
  const auto keep = [&](const char* why) {
    if (why && graph.keep(why))
      log_.say("graph " + std::to_string(graph.number()) + ": the program's own is launched from now on: " + why);
  };
  if (is_release(call.kind)) graph.facts().memory_goes(call);
  if (call.ends == Ends::code) graph.code_goes(call.image);
  if (call.kind == CallKind::context_end) graph.context_ended(call.context);
  // The program learns of the memory only after this: no launch that uses it comes before.
  if (is_allocation(call.kind) && !graph.passes()) keep(graph.facts().memory_comes(call));
  // What is done in the program's order alone may be seen from outside from now on.
  if (call.shown) keep("others may reach its memory now");
}

bool LiveGraphs::give_back() const {
  std::vector<Shared> graphs;
  {
    const std::shared_lock lock(mutex_);
    for (const auto& [exec, graph] : graphs_) graphs.push_back(graph);
  }
  bool any = false;
  for (const Shared& graph : graphs) any = graph->give_back() || any;
  return any;
}

LiveGraphs::Analysis::Analysis(LiveGraphs& graphs) : graphs_(graphs) {
  const std::lock_guard lock(graphs.missed_mutex_);
  graphs.analyses_.fetch_add(1, std::memory_order_release);
  first_ = graphs.missed_.size();
}

LiveGraphs::Analysis::~Analysis() {
  const std::lock_guard lock(graphs_.missed_mutex_);
  if (graphs_.analyses_.fetch_sub(1, std::memory_order_release) == 1) graphs_.missed_.clear();
}

}  // namespace nimble::shim
