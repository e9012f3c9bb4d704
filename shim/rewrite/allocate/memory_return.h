// When memory goes back to the driver: memory of ended captures once no work can be using it, transient memory of
// graphs that are known not to run, and rewritten graphs that will not be launched again.
//
// Owns nothing. No lock; calls the driver, and may wait for the GPU for a while, during which no capture begins. Any
// thread; how much was retired when a call began is thread-local.
#pragma once

#include "nimble/internal/call.h"
#include "shim/rewrite/allocate/capture_allocator.h"
#include "shim/rewrite/allocate/memory_shortage.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/live/graph_functions.h"
#include "shim/rewrite/live/live_graphs.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class MemoryReturn {
 public:
  // All of it must outlive this.
  struct Uses {
    CallContext& context;
    CapturePool& pool;
    CapturesUnderWay& captures;
    MemoryShortage& shortage;
    CaptureAllocator& allocator;
    LiveGraphs& graphs;
    GraphFunctions& functions;
    const RewriteLog& log;
  };
  explicit MemoryReturn(const Uses& uses) : uses_(uses) {}

  // The call is about to wait for all of the program's work on the GPU, or for a stream.
  void wait_begins();
  // After a call. If it was such a wait, releases memory that no work can be using any more; and memory of captures
  // that came to nothing becomes available to others.
  void after(const Call& call, bool good);
  // The driver had no memory for the call. Returns whether we released any.
  bool give_back(const Call& call) noexcept;

 private:
  FormerMemory::Going going();

  const Uses uses_;
};

}  // namespace nimble::shim
