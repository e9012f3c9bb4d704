// When memory goes back to the driver: what captures have left once nothing can be at work in it, what graphs have
// while they run where they are known not to, and rewritten graphs that nobody launches any more.
//
// Owns nothing. No lock; calls the driver, and may wait for the GPU for a while, in which no capture begins. Any
// thread; what had been left when a call began is kept with its thread.
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

  // The call is about to wait until the GPU has done all that the program knows of, or all of a stream.
  void wait_begins();
  // The driver has had a call. Memory that nothing can be at work in any more goes, if it was such a wait; and what is
  // left of captures that came to nothing is for others from now on.
  void after(const Call& call, bool good);
  // The driver had no memory for the call. Whether any has gone back.
  bool give_back(const Call& call) noexcept;

 private:
  FormerMemory::Going going();

  const Uses uses_;
};

}  // namespace nimble::shim
