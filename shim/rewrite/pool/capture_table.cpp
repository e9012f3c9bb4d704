#include "shim/rewrite/pool/capture_table.h"

namespace nimble::shim {

PooledCapture* CaptureTable::find(std::uint64_t capture) {
  const auto found = captures_.find(capture);
  return found == captures_.end() ? nullptr : &found->second;
}

void CaptureTable::let_go(std::uint64_t id) {
  const auto found = captures_.find(id);
  PooledCapture& capture = found->second;
  const CapturedGraph& graph = capture.graph;
  if (!graph.ended || graph.graph || graph.shared || !graph.execs.empty() ||
      (graph.launched && !capture.slots.live().empty()))
    return;
  former_.take_over(capture.slots.leave(graph.launched));
  captures_.erase(found);
}

void CaptureTable::await_launch(const std::set<CUgraphExec>& execs) {
  await_launch_.insert(execs.begin(), execs.end());
  any_awaits_launch_.store(!await_launch_.empty(), std::memory_order_release);
}

void CaptureTable::await_launch(CUgraphExec exec) {
  await_launch_.insert(exec);
  any_awaits_launch_.store(true, std::memory_order_release);
}

bool CaptureTable::end_await(CUgraphExec exec) {
  const bool awaited = await_launch_.erase(exec) != 0;
  any_awaits_launch_.store(!await_launch_.empty(), std::memory_order_release);
  return awaited;
}

}  // namespace nimble::shim
