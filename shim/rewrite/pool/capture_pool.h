// Memory for what a program allocates in stream order while it captures.
//
// The driver would make a node of each such allocation, whose memory exists only while the graph runs, and a graph that
// holds one may have one executable alone. Here each gets a slot, at once and for as long as the graph may run, as a
// caching allocator gives it: then the graph holds nothing but work, and any number of executables can be made of it.
// Which slot an allocation gets says capture_slots.h, where memory comes from chunk_source.h, where it goes
// former_memory.h, and when captured_graphs.h.
//
// Owns all of these. What it does itself, allocations and releases, it does under the lock of the captures' table
// (capture_table.h), which is never held while the driver is called. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "nimble/internal/call.h"
#include "shim/rewrite/pool/capture_memory.h"
#include "shim/rewrite/pool/capture_slots.h"
#include "shim/rewrite/pool/capture_table.h"
#include "shim/rewrite/pool/captured_graphs.h"
#include "shim/rewrite/pool/former_memory.h"

namespace nimble::shim {

class CapturePool {
 public:
  explicit CapturePool(CallContext& context) : table_(context), graphs_(table_) {}

  CapturedGraphs& graphs() { return graphs_; }
  FormerMemory& former() { return table_.former(); }
  TransientMemory& transient() { return graphs_.transient(); }

  // --- Captures.

  // A capture has begun, with this id (cuStreamGetCaptureInfo), for somebody who has asked for its memory to be of
  // here. Others are served `again`.
  void began(std::uint64_t capture, Serve serve, std::shared_ptr<const CapturePlan> plan);
  // Whether its memory must be of here.
  bool is_asked_for(std::uint64_t capture) const;
  // How much memory of this context captures have that are not this one; nothing where it has asked for its memory to
  // be of here, or has had any, or has a bound.
  std::optional<std::uint64_t> held_by_others(std::uint64_t capture, CUcontext context) const;
  // How much device memory of this context all captures hold, those among them whose graphs have gone.
  std::uint64_t held(CUcontext context) const;
  // This capture gets no more than so much from here.
  void bound(std::uint64_t capture, std::uint64_t bytes);
  // In this capture what is put on the stream does not come behind all that was put on it before, any more.
  void unordered(std::uint64_t capture, std::uint64_t stream);
  // A stream has ended: what comes under its handle is another, which comes behind nothing of it.
  void stream_ended(std::uint64_t stream);
  // Of the capture that ended in this graph; nothing where no memory is of here.
  std::optional<CaptureMemory> memory_of(CUgraph graph) const;
  // A context ends, and its memory with it; what came from the device's pool stays taken there. And then: the driver
  // has ended it, or has refused to.
  void context_ends(CUcontext context);
  void context_ended(CUcontext context, bool good) { table_.source().backing().context_ended(context, good); }

  // --- Their memory.

  // Memory for an allocation on the stream with this key, which is in that capture, whose graph has so many nodes.
  // Nothing where the driver has none, or what the capture has lies elsewhere.
  std::optional<MemorySlot> allocate(std::uint64_t capture, CaptureHome home, std::uint64_t stream, std::size_t nodes,
                                     std::uint64_t size);
  // Whether no two allocations of this capture share a byte; or only as its plan says, by which one of so many bytes
  // comes next.
  bool serves_apart(std::uint64_t capture, std::uint64_t bytes) const;
  // Of an allocation that got nothing: what to answer where it must be of here; nothing where the driver may serve it.
  Answer refusal(std::uint64_t capture, CaptureHome home) const;
  // The program releases memory on this stream. `nodes`: where that stream is in the capture with this id, too, how
  // many nodes its graph has. Whether it is of here; or is, and there is nothing there to release.
  enum class Release : std::uint8_t { foreign, done, nothing_there };
  Release release(std::uint64_t address, std::uint64_t stream, std::uint64_t capture, std::optional<std::size_t> nodes);
  // A graph of the program's own making releases it, nobody can tell when: the memory stays. Whether it is of here.
  bool released_by_graph(std::uint64_t address);
  // What the program has at an address, where that is in memory of here. Nothing where it is not; or where it is of a
  // capture that somebody has asked for, who is to see the memory as it is.
  struct Found {
    bool there = false;                   // the driver's memory would be: from a launch to its release
    std::uint64_t address = 0, size = 0;  // as asked for
    CUcontext context = nullptr;
  };
  std::optional<Found> find(std::uint64_t address) const;
  // Whether a slot of here begins there, or did and the program may not know that it is gone.
  bool holds(std::uint64_t address) const;

 private:
  CaptureTable table_;
  CapturedGraphs graphs_;
};

}  // namespace nimble::shim
