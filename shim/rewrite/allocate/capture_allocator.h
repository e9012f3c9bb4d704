// Answers a program's stream-ordered allocations, releases and queries of memory while it captures: from the captures'
// pool (shim/rewrite/pool/capture_pool.h), as the driver would for its own memory.
//
// An allocation that the driver serves becomes a node, whose memory cannot be released before the graph was launched: a
// program that captures for the sake of the graph, and then releases what it captured with, must not get one.
//
// Owns the attributes of the pool's allocations, and whether the program has asked about its graphs' memory. No lock of
// its own; calls the driver. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "nimble/internal/call.h"
#include "replayer/bind/allocation_attributes.h"
#include "shim/rewrite/allocate/memory_shortage.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/live/graph_functions.h"
#include "shim/rewrite/live/live_graphs.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/program_memory/program_memory.h"
#include "shim/rewrite/recording/graph_recordings.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class CaptureAllocator {
 public:
  // All of it must outlive the allocator.
  struct Uses {
    CallContext& context;
    CapturePool& pool;
    CapturesUnderWay& captures;
    MemoryShortage& shortage;
    LiveGraphs& graphs;
    ProgramMemory& memory;
    GraphRecordings& recordings;
    GraphFunctions& functions;
    const RewriteLog& log;
  };
  explicit CaptureAllocator(const Uses& uses) : uses_(uses) {}

  // --- Answers to the program's calls; nothing if the driver is to answer.

  Answer allocate(Call& call);
  Answer release(const Call& call);
  // A graph of the program's own making gets a node that releases memory.
  Answer add_release(const Call& call);
  // A question about memory (Call::question).
  Answer answer(Call& call);

  // --- What becomes of the memory.

  // The program has copied or set memory. A synchronous call waits until that is done, if the program has asked for
  // this for the memory.
  void copied(const Call& call);
  // The program has launched a graph, which may release some.
  void launched(const Call& call);
  // Captures that are over no longer have these slots; others may get them.
  void gone(const std::vector<MemorySlot>& slots);

 private:
  std::optional<MemorySlot> take(const Call& call, const CapturesUnderWay::Capturing& capture, CaptureHome home);
  CUresult wait_as_release_does() const;
  Answer release_of_pool(const Call& call);
  Answer answer_about_memory(Call& call);

  const Uses uses_;
  AllocationAttributes answers_;
  std::atomic<bool> asked_of_graphs_{false};
};

}  // namespace nimble::shim
