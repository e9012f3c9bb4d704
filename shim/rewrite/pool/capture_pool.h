// Memory for a program's stream-ordered allocations during captures.
//
// The driver would make each a node, whose memory exists only while the graph runs, and a graph with such a node may be
// instantiated only once. Here each gets a slot, at once and for as long as the graph may run, as from a caching
// allocator: then the graph holds only work, and can be instantiated any number of times. capture_slots.h decides which
// slot an allocation gets, chunk_source.h where memory comes from, former_memory.h where it goes, and captured_graphs.h
// when.
//
// Owns all of these. Allocates and releases under the lock of the captures' table (capture_table.h), which is never
// held while the driver is called. Any thread.
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

  // A capture has begun, with this id (cuStreamGetCaptureInfo), whose memory must come from here. Others are served
  // `again`.
  void began(std::uint64_t capture, Serve serve, std::shared_ptr<const CapturePlan> plan);
  // Whether its memory must come from here.
  bool is_asked_for(std::uint64_t capture) const;
  // How much memory of this context other captures have; nothing if this one's must come from here, or if it already
  // has memory or a limit.
  std::optional<std::uint64_t> held_by_others(std::uint64_t capture, CUcontext context) const;
  // How much device memory of this context all captures hold, including those whose graphs are gone.
  std::uint64_t held(CUcontext context) const;
  // Limits what this capture gets from here.
  void bound(std::uint64_t capture, std::uint64_t bytes);
  // From now on work on the stream in this capture is not ordered after all earlier work on it.
  void unordered(std::uint64_t capture, std::uint64_t stream);
  // A stream has ended: a new stream with its handle is not ordered after its work.
  void stream_ended(std::uint64_t stream);
  // Of the capture that ended in this graph; nothing if it has no memory from here.
  std::optional<CaptureMemory> memory_of(CUgraph graph) const;
  // A context ends, and its memory with it; memory from the device's pool stays allocated there. Then: the driver has
  // ended it, or has refused to.
  void context_ends(CUcontext context);
  void context_ended(CUcontext context, bool good) { table_.source().backing().context_ended(context, good); }

  // --- Their memory.

  // Memory for an allocation on the stream with this key, which is in that capture, whose graph has so many nodes.
  // Nothing if the driver has none, or the capture's other memory lies elsewhere.
  std::optional<MemorySlot> allocate(std::uint64_t capture, CaptureHome home, std::uint64_t stream, std::size_t nodes,
                                     std::uint64_t size);
  // Whether no two allocations of this capture share a byte, except as its plan says, which expects one of this size
  // next.
  bool serves_apart(std::uint64_t capture, std::uint64_t bytes) const;
  // Of an allocation that got nothing: what to answer where it must be of here; nothing where the driver may serve it.
  Answer refusal(std::uint64_t capture, CaptureHome home) const;
  // The program releases memory on this stream. `nodes`: where that stream is in the capture with this id, too, how
  // many nodes its graph has. Whether it is of here; or is, and there is nothing there to release.
  enum class Release : std::uint8_t { foreign, done, nothing_there };
  Release release(std::uint64_t address, std::uint64_t stream, std::uint64_t capture, std::optional<std::size_t> nodes);
  // A graph that the program has built releases it at an unknown time: the memory stays. Whether it is from here.
  bool released_by_graph(std::uint64_t address);
  // The program's allocation at an address in this memory. Nothing if the address is elsewhere, or in a capture whose
  // memory must come from here: its user sees the memory as it is.
  struct Found {
    bool there = false;                   // whether the driver's memory would exist: from a launch to its release
    std::uint64_t address = 0, size = 0;  // as asked for
    CUcontext context = nullptr;
  };
  std::optional<Found> find(std::uint64_t address) const;
  // Whether a slot begins there, or did and the program may not know that it is gone.
  bool holds(std::uint64_t address) const;

 private:
  CaptureTable table_;
  CapturedGraphs graphs_;
};

}  // namespace nimble::shim
