// Facts about the program's present and past memory, whoever allocated it: where it has ever been, what is cuDNN's own,
// what was released since the capture of a graph that may name it, and which allocations the program watches. Excludes
// memory of captures (shim/rewrite/pool/), except where it has been.
//
// Owns the four parts; each has its own lock, never held while the driver is called. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nimble/internal/call.h"
#include "shim/rewrite/program_memory/known_addresses.h"
#include "shim/rewrite/program_memory/library_memory.h"
#include "shim/rewrite/program_memory/memory_watch.h"
#include "shim/rewrite/program_memory/released_memory.h"

namespace nimble::shim {

class ProgramMemory {
 public:
  // `context` must outlive it.
  explicit ProgramMemory(CallContext& context) : watch_(context), released_(context) {}

  // The call has allocated memory for the program. `analyzing`: a graph is being analyzed meanwhile.
  void came(const Call& call, bool analyzing);
  // The same for a capture's memory.
  void came_in_capture(const Call& call) { known_.came(call.memory.address, call.memory.size); }
  // The call is about to release memory that is not a capture's.
  void goes(const Call& call);
  // The call is about to release memory, or to end code or a context.
  void is_about_to_end(const Call& call);

  // A capture, by its id, and the graph that it has ended in; null if none.
  void capture_began(std::uint64_t capture) { released_.began(capture); }
  void capture_ended(std::uint64_t capture, CUgraph graph) { released_.ended(capture, graph); }
  void destroyed(CUgraph graph) { released_.destroyed(graph); }

  // Whether one of the graph's nodes names memory that was released since its capture began; true if unknown.
  bool names_released(const ProgramGraph& graph) const { return released_.is_named_by(graph); }
  // Whether memory that begins there is cuDNN's own.
  bool is_librarys(std::uint64_t address) const { return library_.holds(address); }
  // Whether the program may know it as an address of some memory, or next to some.
  bool is_known(std::uint64_t address) const { return known_.holds(address); }
  // The allocations that the program watches.
  MemoryWatch& watch() { return watch_; }

 private:
  MemoryWatch watch_;
  ReleasedMemory released_;
  KnownAddresses known_;
  LibraryMemory library_;
};

}  // namespace nimble::shim
