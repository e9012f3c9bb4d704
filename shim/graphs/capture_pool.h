// Memory for what a program allocates in stream order while it captures.
//
// The driver would make a node of each such allocation, whose memory exists only while the graph runs, and of which a
// graph may have one executable alone. Here each gets a slot of its own, at once and for as long as the graph may run,
// as a caching allocator gives it: then the graph holds nothing but work, and any number of executables can be made of
// it. A slot that the program has released in the capture is used again only where what the capture has would not stay
// in the device's cache otherwise (measured on an H200: a chain of kernels that never meets its memory again takes up
// to 15 % longer), the one first that was released first: what used it then is long over, and need not be waited for.
// A slot keeps its size, so whoever looks at a graph's nodes may take it for one allocation.
//
// Owns that memory. What belongs to one capture is released together: once the program has released all of it, and the
// captured graph and all its executables are gone. Of a graph that the program puts into another or clones nobody can
// tell when that is: its memory stays. One lock; driver calls are made under it, since captures are rare. Any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "nimble/call.h"

namespace nimble::shim {

class CapturePool {
 public:
  // Slots are used again in a capture that has so many bytes; 0: in one that has half of what the device's L2 cache
  // holds.
  CapturePool(CallContext& context, std::uint64_t reuse_from) : context_(context), reuse_from_(reuse_from) {}

  struct Slot {
    std::uint64_t address = 0, size = 0;
    bool used_again = false;
  };

  // Memory for an allocation on the stream with this key, which is in the capture with this id
  // (cuStreamGetCaptureInfo); nothing where the driver has none.
  std::optional<Slot> allocate(std::uint64_t capture, std::uint64_t stream, std::uint64_t size);
  // The program releases it on this stream: whether it is of here. `gone` gets what is released for good by that.
  bool release(std::uint64_t address, std::uint64_t stream, std::vector<Slot>& gone);
  // Whether a slot of here begins there, released by the program or not.
  bool holds(std::uint64_t address) const;

  // The capture has ended in this graph; or in none.
  void ended(std::uint64_t capture, CUgraph graph, std::vector<Slot>& gone);
  void instantiated(CUgraph graph, CUgraphExec exec);
  void destroyed(CUgraph graph, std::vector<Slot>& gone);
  void destroyed(CUgraphExec exec, std::vector<Slot>& gone);
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
  // Slots of one size that the program has released on one stream, the first of them first.
  struct Released {
    std::uint64_t stream, size;
    auto operator<=>(const Released&) const = default;
  };
  struct Capture {
    CUcontext context = nullptr;
    CUgraph graph = nullptr;
    bool ended = false, shared = false;
    std::set<CUgraphExec> execs;
    std::vector<Chunk> chunks;
    std::uint64_t bytes = 0;                       // of all slots
    std::map<std::uint64_t, std::uint64_t> slots;  // by address: size
    std::set<std::uint64_t> live;                  // addresses that the program has
    std::map<Released, std::deque<std::uint64_t>> released;
  };

  std::uint64_t reuse_from();
  std::optional<Slot> use_again(Capture& capture, std::uint64_t stream, std::uint64_t size);
  void let_go(std::uint64_t capture, std::vector<Slot>& gone);

  CallContext& context_;
  mutable std::mutex mutex_;  // guards all below
  std::uint64_t reuse_from_;  // 0: not known yet
  std::map<std::uint64_t, Capture> captures_;
};

}  // namespace nimble::shim
