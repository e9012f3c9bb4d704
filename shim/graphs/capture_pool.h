// Memory for what a program allocates in stream order while it captures.
//
// The driver would make a node of each such allocation, whose memory exists only while the graph runs, and of which a
// graph may have one executable alone. Here each gets memory of its own, at once and for as long as the graph may run,
// as a caching allocator gives it: then the graph holds nothing but work, any number of executables can be made of it,
// and no two objects share a byte, so that no order comes from that.
//
// Owns that memory. What belongs to one capture is released together: once the program has released all of it, and the
// captured graph and all its executables are gone. Of a graph that the program puts into another or clones nobody can
// tell when that is: its memory stays. One lock; driver calls are made under it, since captures are rare. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "nimble/call.h"
#include "replayer/memory_map.h"

namespace nimble::shim {

class CapturePool {
 public:
  explicit CapturePool(CallContext& context) : context_(context) {}

  struct Block {
    std::uint64_t address = 0, size = 0;
  };

  // Memory for an allocation in the capture with this id (cuStreamGetCaptureInfo); nothing where the driver has none.
  std::optional<Block> allocate(std::uint64_t capture, std::uint64_t size);
  // The program releases it: whether it is of here. `gone` gets what is released for good by that.
  bool release(std::uint64_t address, std::vector<Block>& gone);
  // Whether a block of here begins there, released by the program or not.
  bool holds(std::uint64_t address) const;

  // The capture has ended in this graph; or in none.
  void ended(std::uint64_t capture, CUgraph graph, std::vector<Block>& gone);
  void instantiated(CUgraph graph, CUgraphExec exec);
  void destroyed(CUgraph graph, std::vector<Block>& gone);
  void destroyed(CUgraphExec exec, std::vector<Block>& gone);
  // The graph has become a part of another, or was cloned.
  void shared(CUgraph graph);
  void shared(CUgraphExec exec);
  // A context ended, and its memory with it.
  void context_ended(CUcontext context);

  std::uint64_t bytes() const;

 private:
  struct Chunk {
    std::uint64_t base = 0, size = 0, used = 0;
  };
  struct Capture {
    CUcontext context = nullptr;
    CUgraph graph = nullptr;
    bool ended = false, shared = false;
    std::set<CUgraphExec> execs;
    std::vector<Chunk> chunks;
    std::map<std::uint64_t, std::uint64_t> blocks;  // by address: size; all that were ever handed out
    std::set<std::uint64_t> live;                   // addresses that the program has
  };

  void let_go(std::uint64_t capture, std::vector<Block>& gone);

  CallContext& context_;
  mutable std::mutex mutex_;  // guards all below
  std::map<std::uint64_t, Capture> captures_;
};

}  // namespace nimble::shim
