// All captures that have memory, or whose memory must come from the pool: those under way, and those whose graph or
// executable graphs the program still has. A capture's memory is released as a whole: once the program has released all
// of it, and the captured graph and all its executables are gone.
//
// Owns this, under one lock, which is never held while the driver is called: CapturePool handles allocations and
// releases, CapturedGraphs what becomes of the graphs. Both take the lock for each operation. FormerMemory's lock is
// taken under it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "nimble/internal/call.h"
#include "shim/rewrite/memory/transient_memory.h"
#include "shim/rewrite/pool/capture_slots.h"
#include "shim/rewrite/pool/chunk_source.h"
#include "shim/rewrite/pool/former_memory.h"

namespace nimble::shim {

// The graph of an ended capture, and all that may use its memory.
struct CapturedGraph {
  CUgraph graph = nullptr;
  bool ended = false;
  bool shared = false;    // it is unknown when it runs, or ends: its memory stays
  bool launched = false;  // any of its executables
  bool kept = false;      // its transient memory must stay
  std::set<CUgraphExec> execs;
  std::set<std::uint64_t> releases;   // memory of other captures, when it runs
  TransientMemory::Shared transient;  // once asked for
  std::uint64_t left = 0;             // how much memory the driver would use for the program's part of it
  std::size_t counted = 0;            // computed for so many allocations

  bool is(CUgraph other) const { return ended && graph == other; }
};

struct PooledCapture {
  CaptureSlots slots;
  CapturedGraph graph;
};

class CaptureTable {
 public:
  explicit CaptureTable(CallContext& context) : source_(context), former_(source_) {}

  // Where memory comes from, and where it goes. Without the lock.
  ChunkSource& source() { return source_; }
  const ChunkSource& source() const { return source_; }
  FormerMemory& former() { return former_; }
  const FormerMemory& former() const { return former_; }
  // Whether the launch of any executable graph may bring memory, or take some. Takes no lock.
  bool any_awaits_launch() const { return any_awaits_launch_.load(std::memory_order_acquire); }

  // --- For all members below.
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }

  using Captures = std::map<std::uint64_t, PooledCapture>;  // by the driver's id
  Captures& captures() { return captures_; }
  const Captures& captures() const { return captures_; }
  PooledCapture* find(std::uint64_t capture);
  const PooledCapture* find(std::uint64_t capture) const { return const_cast<CaptureTable*>(this)->find(capture); }
  // Releases the capture's memory and forgets the capture, if nothing can use the memory any more.
  void let_go(std::uint64_t capture);
  // The same for each capture for which that may have become true: `visit` changes a capture, and says so.
  template <class Visit>
  void let_go_where(const Visit& visit) {
    for (auto at = captures_.begin(); at != captures_.end();) {
      const std::uint64_t id = at->first;
      if (visit((at++)->second)) let_go(id);
    }
  }

  // The next launch of these brings memory, or takes some; that of this one does not.
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
