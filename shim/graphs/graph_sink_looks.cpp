// What a GraphSink does about ops that touch memory of its graphs while these run, from other streams.
#include <algorithm>
#include <chrono>
#include <thread>

#include "replayer/touched_addresses.h"
#include "shim/graphs/graph_sink.h"

namespace nimble::shim {

namespace {

// How long an op waits at most for graphs to be through. They may be waiting for it.
constexpr std::chrono::milliseconds kMostWait{1000};

}  // namespace

// Without what cuDNN has for itself, where nobody looks.
std::vector<WatchedMemory::Range> GraphSink::named_by(const GraphSchedule& found) const {
  std::vector<WatchedMemory::Range> ranges;
  for (const TraceProbe::Range& range : found.memory) {
    const auto is_it = [&](const GraphSchedule::Written& each) { return each.range == range; };
    const bool written = !found.writes || std::ranges::any_of(*found.writes, is_it);
    if (range.bytes != 0 && !library_memory_.holds(range.address))
      ranges.push_back({range.address, range.address + range.bytes, written});
  }
  return ranges;
}

// Before the driver has it: an op on another stream than that of a graph that may be running, or a call by which
// somebody may look from now on.
void GraphSink::look(Call& call) {
  if (call.shown) {
    if (looks_.any()) wait_for(graphs_met_by(call));
    return;
  }
  if (!looks_.arrives(call) || (captures_.load(std::memory_order_relaxed) > 0 && capturing(call))) return;
  std::vector<std::shared_ptr<GraphPair>> met = graphs_met_by(call);
  std::erase_if(met, [&](const auto& graph) { return looks_.is_through(*graph); });
  wait_for(met);
  for (const auto& graph : met)
    if (graph->keep("others touch its memory while it runs"))
      say("graph " + std::to_string(graph->number()) +
          " is the program's own: ops on another stream touch its memory, in no order with it");
}

// Those that must be through before the call.
std::vector<std::shared_ptr<GraphPair>> GraphSink::graphs_met_by(Call& call) {
  std::vector<std::shared_ptr<GraphPair>> met;
  std::shared_lock lock(graphs_mutex_);
  if (named_is_due_) {
    lock.unlock();
    name_all();
    lock.lock();
  }
  const auto touches = [&](std::uint64_t address, std::uint64_t bytes, bool writes) {
    auto at = std::partition_point(named_.begin(), named_.end(), [&](const auto& each) { return each.end <= address; });
    for (; at != named_.end() && (at->begin <= address || at->begin - address < bytes); ++at)
      if (writes || at->written) return true;
    return false;
  };
  const auto leads = [&](std::uint64_t word) { return touches(word, 1, true); };
  if (!call.shown && !named_is_due_ && !any_touched(call, context_, false, touches, leads)) return met;
  const auto found = call.exec ? graphs_.find(call.exec) : graphs_.end();
  const GraphPair* const own = found == graphs_.end() ? nullptr : found->second.get();
  for (const auto& [exec, graph] : graphs_) {
    if (graph.get() == own) continue;
    if (call.shown || (graph->meets(call, context_, own) && looks_.meets(call, *graph))) met.push_back(graph);
  }
  return met;
}

void GraphSink::name_all() {
  const std::unique_lock lock(graphs_mutex_);
  if (!named_is_due_) return;
  std::vector<WatchedMemory::Range> all;
  for (const auto& [exec, graph] : graphs_) all.insert(all.end(), graph->named().begin(), graph->named().end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  named_.clear();
  for (const WatchedMemory::Range& range : all) {
    if (named_.empty() || named_.back().end <= range.begin) {
      named_.push_back(range);
      continue;
    }
    named_.back().end = std::max(named_.back().end, range.end);
    named_.back().written = named_.back().written || range.written;
  }
  named_is_due_ = false;
}

void GraphSink::wait_for(const std::vector<std::shared_ptr<GraphPair>>& graphs) {
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  for (const auto& graph : graphs)
    while (!looks_.is_through(*graph) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace nimble::shim
