// Launches the program's executable graphs: one of each pair, with the memory that it needs.
//
// With the driver's own memory, graphs would wait for each other on the device when memory is short; here the host
// waits until earlier ones are done, but not for ever, since they may wait for this thread.
//
// Owns the count of launches of rewritten graphs. No lock; calls the driver, under the graph's own lock (GraphPair).
// Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "nimble/internal/call.h"
#include "shim/rewrite/allocate/capture_allocator.h"
#include "shim/rewrite/allocate/memory_return.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/capture/dry_runs.h"
#include "shim/rewrite/graph/graph_pair.h"
#include "shim/rewrite/live/graph_onlookers.h"
#include "shim/rewrite/live/live_graphs.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/recording/graph_recordings.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class GraphLauncher {
 public:
  // All of it must outlive the launcher.
  struct Uses {
    CapturePool& pool;
    CapturesUnderWay& captures;
    DryRuns& dry_runs;
    LiveGraphs& graphs;
    GraphOnlookers& onlookers;
    GraphRecordings& recordings;
    CaptureAllocator& allocator;
    MemoryReturn& memory_return;
    const RewriteLog& log;
  };
  explicit GraphLauncher(const Uses& uses) : uses_(uses) {}

  // The answer to the program's call; nothing where the driver is to launch it.
  Answer launch(Call& call);
  // Whether the calling thread may launch it on the stream: its context is current, and the stream does not capture.
  // Nothing if the graph is not known.
  std::optional<bool> may_launch(CUgraphExec exec, CUstream stream) const;
  // The number of launches of rewritten graphs.
  std::uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }

 private:
  GraphPair::Launch launch_one(const Call& call, GraphPair& graph);
  GraphPair::Launch launch_with_memory(const Call& call, GraphPair& graph, TransientMemory::Part* part);
  void tell_reserve(const Call& call, const TransientMemory::Part& part) noexcept;
  void launched(const Call& call) noexcept;

  const Uses uses_;
  std::atomic<std::uint64_t> launches_{0};
};

}  // namespace nimble::shim
