// The program's executable graphs that are alive, each with the one that was made of it, by handle: what one launches,
// and who hears of it where something changes that graphs rest on.
//
// A graph that is being analyzed is not in the table yet. What happens meanwhile is kept, and it hears of that when it
// is put there (Analysis).
//
// Owns the table, under a lock that is shared by who only looks, and what analyses have missed, under one that is taken
// after it. Neither is held while the driver is called, but what graphs do under it themselves (GraphPair). Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/rewrite/graph/graph_pair.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

inline bool is_release(CallKind kind) { return kind == CallKind::free || kind == CallKind::free_async; }

class LiveGraphs {
 public:
  using Shared = std::shared_ptr<GraphPair>;

  // `log` must outlive it.
  explicit LiveGraphs(const RewriteLog& log) : log_(log) {}

  // Null where it is not known.
  Shared find(CUgraphExec exec) const;
  // `gone` is told of the graph, under the lock. False where it was not known.
  template <class Gone>
  bool remove(CUgraphExec exec, const Gone& gone);

  // Something that graphs may rest on has changed, or is about to.
  void tell(const Call& call);
  // Calls `visit` with each, under the lock.
  template <class Visit>
  void each(const Visit& visit) const;
  // Memory is short: rewritten graphs that will not be launched any more go. Whether any did.
  bool give_back() const;

  // While one lives a graph is analyzed: what happens to memory and code meanwhile.
  class Analysis {
   public:
    explicit Analysis(LiveGraphs& graphs);
    ~Analysis();
    Analysis(const Analysis&) = delete;
    Analysis& operator=(const Analysis&) = delete;
    // From now on the graph is alive. It has heard of what it missed. `replaced` is told of another of the same handle,
    // which ended unseen, under the lock.
    template <class Replaced>
    void put(CUgraphExec exec, Shared graph, const Replaced& replaced);

   private:
    LiveGraphs& graphs_;
    std::size_t first_ = 0;
  };
  // Whether any graph is.
  bool any_analysis() const { return analyses_.load(std::memory_order_acquire) != 0; }

 private:
  void tell(GraphPair& graph, const Call& call) const;

  const RewriteLog& log_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<CUgraphExec, Shared> graphs_;
  std::atomic<int> analyses_{0};  // that go on
  std::mutex missed_mutex_;
  std::vector<Call> missed_;  // while any goes on
};

template <class Gone>
bool LiveGraphs::remove(CUgraphExec exec, const Gone& gone) {
  Shared graph;  // goes after the lock
  const std::unique_lock lock(mutex_);
  const auto found = graphs_.find(exec);
  if (found == graphs_.end()) return false;
  graph = std::move(found->second);
  graphs_.erase(found);
  gone(*graph);
  return true;
}

template <class Visit>
void LiveGraphs::each(const Visit& visit) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [exec, graph] : graphs_) visit(*graph);
}

// Nobody adds to what was missed meanwhile: the lock is held by this thread alone.
template <class Replaced>
void LiveGraphs::Analysis::put(CUgraphExec exec, Shared graph, const Replaced& replaced) {
  const std::unique_lock lock(graphs_.mutex_);
  for (std::size_t i = first_; i < graphs_.missed_.size(); ++i) graphs_.tell(*graph, graphs_.missed_[i]);
  std::swap(graphs_.graphs_[exec], graph);
  if (graph) replaced(*graph);
}

}  // namespace nimble::shim
