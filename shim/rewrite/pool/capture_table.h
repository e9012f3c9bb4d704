// All captures that have memory, or that somebody has asked memory for: those that go on, and those whose graph or
// executable graphs the program still has. What belongs to one capture is released together: once the program has
// released all of it, and the captured graph and all its executables are gone.
//
// Owns this, under one lock, which is never held while the driver is called: CapturePool sees to allocations and
// releases, CapturedGraphs to what becomes of the graphs. Both take the lock for each thing that they do. Under it
// FormerMemory's is taken.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "nimble/internal/call.h"
#include "shim/rewrite/memory/transient.h"
#include "shim/rewrite/pool/capture_slots.h"
#include "shim/rewrite/pool/chunk_source.h"
#include "shim/rewrite/pool/former_memory.h"

namespace nimble::shim {

// What a capture has ended in, and whoever may use its memory because of that.
struct CapturedGraph {
  CUgraph graph = nullptr;
  bool ended = false;
  bool shared = false;    // nobody can tell when it runs, or when it ends: its memory stays
  bool launched = false;  // any of its executables
  bool kept = false;      // its transient memory is not to go
  std::set<CUgraphExec> execs;
  std::set<std::uint64_t> releases;   // memory of other captures, when it runs
  TransientMemory::Shared transient;  // once asked for
  std::uint64_t left = 0;             // how much memory the driver would have for what the program has of it
  std::size_t counted = 0;            // when that was so many allocations

  bool is(CUgraph other) const { return ended && graph == other; }
};

struct PooledCapture {
  CaptureSlots slots;
  CapturedGraph graph;
};

class CaptureTable {
 public:
  explicit CaptureTable(CallContext& context) : source_(context), former_(source_) {}

  // Where its memory comes from, and where it goes. Without the lock.
  ChunkSource& source() { return source_; }
  const ChunkSource& source() const { return source_; }
  FormerMemory& former() { return former_; }
  const FormerMemory& former() const { return former_; }
  // Whether a launch may bring memory, or take some, of any executable graph. Costs no lock.
  bool any_awaits_launch() const { return any_awaits_launch_.load(std::memory_order_acquire); }

  // --- For all below.
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }

  using Captures = std::map<std::uint64_t, PooledCapture>;  // by the driver's number
  Captures& captures() { return captures_; }
  const Captures& captures() const { return captures_; }
  PooledCapture* find(std::uint64_t capture);
  const PooledCapture* find(std::uint64_t capture) const { return const_cast<CaptureTable*>(this)->find(capture); }
  // What the capture has goes, once nobody can use it any more; and then the capture is forgotten.
  void let_go(std::uint64_t capture);
  // The same of each for which that may have become so. `visit` says so, of a capture, and changes it.
  template <class Visit>
  void let_go_where(const Visit& visit) {
    for (auto at = captures_.begin(); at != captures_.end();) {
      const std::uint64_t id = at->first;
      if (visit((at++)->second)) let_go(id);
    }
  }

  // The next launch of these brings memory, or takes some; or of this one not.
  void await_launch(const std::set<CUgraphExec>& execs);
  void await_launch(CUgraphExec exec);
  bool end_await(CUgraphExec exec);

 private:
  ChunkSource source_;
  FormerMemory former_;
  std::atomic<bool> any_awaits_launch_{false};
  mutable std::mutex mutex_;  // guards all below
  Captures captures_;
  std::set<CUgraphExec> await_launch_;
};

}  // namespace nimble::shim
