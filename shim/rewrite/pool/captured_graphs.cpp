#include "shim/rewrite/pool/captured_graphs.h"

#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace nimble::shim {

void CapturedGraphs::ended(std::uint64_t id, CUgraph graph, bool kept) {
  const auto lock = table_.lock();
  PooledCapture* const capture = table_.find(id);
  if (!capture) return;
  capture->graph.ended = true;
  capture->graph.graph = graph;
  if (kept) capture->graph.shared = true;
  table_.let_go(id);
}

void CapturedGraphs::instantiated(CUgraph graph, CUgraphExec exec) {
  const auto lock = table_.lock();
  for (auto& [id, capture] : table_.captures()) {
    if (!capture.graph.is(graph)) continue;
    capture.graph.execs.insert(exec);
    table_.await_launch(exec);
  }
}

// Later launches take every parameter from this graph. Earlier ones may still run: memory that nothing else can use is
// retired, and so waits for them.
void CapturedGraphs::updated(CUgraph graph, CUgraphExec exec) {
  {
    const auto lock = table_.lock();
    table_.let_go_where(
        [&](PooledCapture& capture) { return !capture.graph.is(graph) && capture.graph.execs.erase(exec) != 0; });
  }
  instantiated(graph, exec);
}

void CapturedGraphs::trim(CUcontext context, CUdevice device) {
  {
    const auto lock = table_.lock();
    tell_left({device, context});
  }
  reserve_.trim(device);
}

// Where its graphs run, if its memory can be unbacked piece by piece. With the table's lock.
std::optional<GraphReserve::Place> CapturedGraphs::place_of(const CaptureSlots& slots) {
  if (!slots.home() || slots.chunks().empty()) return std::nullopt;
  const std::optional<CUdevice> device = table_.source().backing().device(slots.chunks().front().base);
  return device ? std::optional(GraphReserve::Place{*device, slots.home()->context}) : std::nullopt;
}

// Updates how much of the memory that launches left the program still has. Likewise.
void CapturedGraphs::tell_left(GraphReserve::Place place) {
  std::uint64_t sum = 0;
  for (auto& [id, capture] : table_.captures()) {
    const std::map<std::uint64_t, std::uint64_t>& live = capture.slots.live();
    CapturedGraph& graph = capture.graph;
    if (!graph.launched || live.empty() || place_of(capture.slots) != place) continue;
    if (graph.counted != live.size()) {
      GraphHeap heap = capture.slots.heap();
      for (const auto& [address, size] : capture.slots.lasting())
        if (!live.contains(address)) heap.release(address);
      graph.left = heap.held();
      graph.counted = live.size();
    }
    sum += graph.left;
  }
  reserve_.left(place, sum);
}

// How much memory the driver would use for what the graph releases itself, while it runs.
std::uint64_t CapturedGraphs::released_in_driver(const CaptureSlots& slots) {
  const GraphHeap heap = slots.heap();
  return heap.bytes() - heap.held();
}

std::vector<std::uint64_t> CapturedGraphs::launched(CUgraphExec exec, std::uint64_t stream) {
  if (!table_.any_awaits_launch()) return {};
  const auto lock = table_.lock();
  if (!table_.end_await(exec)) return {};
  std::set<std::uint64_t> released;
  for (auto& [id, capture] : table_.captures()) {
    CapturedGraph& graph = capture.graph;
    if (!graph.execs.contains(exec)) continue;
    graph.launched = true;
    capture.slots.launched();
    if (const std::optional<GraphReserve::Place> place = place_of(capture.slots)) {
      reserve_.launched(*place, stream, released_in_driver(capture.slots), table_.former().moment());
      tell_left(*place);
    }
    // It is unknown when a graph that is part of others runs.
    if (!graph.shared) released.insert(graph.releases.begin(), graph.releases.end());
  }
  if (released.empty()) return {};
  table_.await_launch(exec);
  std::vector<std::uint64_t> gone;
  for (const std::uint64_t address : released)
    if (released_by_launch(address)) gone.push_back(address);
  return gone;
}

// With the table's lock.
bool CapturedGraphs::released_by_launch(std::uint64_t address) {
  for (auto& [id, capture] : table_.captures()) {
    if (!capture.slots.release_by_launch(address)) continue;
    table_.await_launch(capture.graph.execs);
    table_.let_go(id);
    return true;
  }
  return false;
}

void CapturedGraphs::destroyed(CUgraph graph) {
  const auto lock = table_.lock();
  table_.let_go_where([&](PooledCapture& capture) {
    if (!capture.graph.is(graph)) return false;
    capture.graph.graph = nullptr;
    return true;
  });
}

void CapturedGraphs::destroyed(CUgraphExec exec) {
  const auto lock = table_.lock();
  table_.end_await(exec);
  table_.let_go_where([&](PooledCapture& capture) { return capture.graph.execs.erase(exec) != 0; });
}

void CapturedGraphs::shared(CUgraph graph) {
  const auto lock = table_.lock();
  for (auto& [id, capture] : table_.captures())
    if (capture.graph.is(graph)) capture.graph.shared = true;
}

void CapturedGraphs::shared(CUgraphExec exec) {
  const auto lock = table_.lock();
  for (auto& [id, capture] : table_.captures())
    if (capture.graph.execs.contains(exec)) capture.graph.shared = true;
}

// Memory in pieces that only the graph's own launches touch: its content is dead after them.
std::vector<TransientMemory::Shared> CapturedGraphs::transient_of(CUgraphExec exec) {
  std::vector<TransientMemory::Shared> found;
  const auto lock = table_.lock();
  for (auto& [id, capture] : table_.captures()) {
    CapturedGraph& graph = capture.graph;
    if (!graph.execs.contains(exec) || graph.kept || graph.shared) continue;
    if (!graph.transient) {
      if (capture.slots.is_asked_for() || !graph.ended) continue;
      std::vector<Backing::Piece> pieces = released_pieces(capture.slots);
      if (const auto place = place_of(capture.slots); place && !pieces.empty())
        graph.transient = transient_.add(std::move(pieces), *place, released_in_driver(capture.slots));
    }
    if (graph.transient) found.push_back(graph.transient);
  }
  return found;
}

std::vector<Backing::Piece> CapturedGraphs::released_pieces(const CaptureSlots& slots) {
  const std::map<std::uint64_t, std::uint64_t> lasts = slots.lasting();
  std::vector<Backing::Piece> pieces;
  for (const MemoryChunk& chunk : slots.chunks())
    for (const Backing::Piece& piece : table_.source().backing().pieces(chunk.base, chunk.base + chunk.size)) {
      const auto after = lasts.lower_bound(piece.address + piece.bytes);
      const bool lasts_none =
          after == lasts.begin() || std::prev(after)->first + std::prev(after)->second <= piece.address;
      if (lasts_none) pieces.push_back(piece);
    }
  return pieces;
}

bool CapturedGraphs::keep(CUgraph graph, CUgraphExec exec) {
  std::vector<TransientMemory::Shared> found;
  {
    const auto lock = table_.lock();
    for (auto& [id, capture] : table_.captures()) {
      CapturedGraph& mine = capture.graph;
      if (!(graph && mine.is(graph)) && !(exec && mine.execs.contains(exec))) continue;
      mine.kept = true;
      if (mine.transient) found.push_back(mine.transient);
    }
  }
  bool good = true;
  for (const TransientMemory::Shared& part : found) good = transient_.keep(*part) && good;
  return good;
}

}  // namespace nimble::shim
