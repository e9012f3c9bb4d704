// The memory of one capture: its chunks, the slots in them, and the program's live allocations.
//
// By default a slot is reused as soon as the program has released it, as in caching allocators: a graph that reuses
// memory soon finds it in the device's cache, and may leave there what it needs the next time (H200: mobilenet_v2 at
// batch 1 takes 17 % longer without reuse). But then otherwise independent nodes are ordered. A capture to learn from
// never reuses a slot; and a repeated capture places allocations by the plan of the learned graph
// (analyzer/plan/memory_layout.h), which shares memory only where the graph's own order allows it.
//
// A capture has followed its plan only if it has allocated exactly as planned, on one stream, and released everything
// in the plan's block before those bytes were handed out again: we never hand out memory that the program still has.
//
// Calls only FormerMemory. The table's lock guards it (capture_table.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "shim/rewrite/memory/graph_heap.h"
#include "shim/rewrite/pool/capture_memory.h"
#include "shim/rewrite/pool/former_memory.h"

namespace nimble::shim {

// How a capture gets its slots: reused, each used only once, or placed by a plan.
enum class Serve : std::uint8_t { again, once, planned };

class CaptureSlots {
 public:
  // The capture's memory must come from here. Others are served `again`.
  void ask_for(Serve serve, std::shared_ptr<const CapturePlan> plan);
  bool is_asked_for() const { return asked_for_; }
  // Limits its chunks to so many bytes.
  void bound(std::uint64_t bytes) { bound_ = bytes; }
  const std::optional<std::uint64_t>& bound() const { return bound_; }
  // Whether its memory lies there: the first allocation decides where.
  bool lies_in(const CaptureHome& home);
  const std::optional<CaptureHome>& home() const { return home_; }
  // Whether no two allocations share a byte, except as its plan says, which expects one of this size next.
  bool serves_apart(std::uint64_t bytes) const;

  // --- An allocation: `asked` bytes, on the stream with this key.

  // The size of the plan's block, if it is needed and missing.
  std::optional<std::uint64_t> lacks_block() const;
  void add_block(const MemoryChunk& chunk);
  void add(const MemoryChunk& chunk) { chunks_.push_back(chunk); }
  const std::vector<MemoryChunk>& chunks() const { return chunks_; }
  const MemoryChunk& block() const { return block_; }
  // An existing slot for it: its place by the plan, or a released one.
  std::optional<MemorySlot> use_again(std::uint64_t stream, std::uint64_t size, std::uint64_t asked);
  // A new slot in the present chunks.
  std::optional<MemorySlot> take(std::uint64_t size, const FormerMemory& former);
  // The result, when the graph has so many nodes.
  void allocated(const std::optional<MemorySlot>& slot, std::size_t nodes, std::uint64_t asked);

  // --- The program's allocations.

  // Whether a slot begins there; whether an address lies in the chunks.
  bool has_slot(std::uint64_t address) const { return slots_.contains(address); }
  bool holds(std::uint64_t address) const;
  // Requested sizes by address.
  const std::map<std::uint64_t, std::uint64_t>& live() const { return live_; }
  // The program releases it: in the capture, whose graph has so many nodes, or outside of it. False if nothing is
  // there.
  bool release(std::uint64_t address, std::uint64_t stream, std::optional<std::size_t> nodes);
  // The launch of another capture's graph releases it. Likewise.
  bool release_by_launch(std::uint64_t address) { return live_.erase(address) != 0; }
  // The graph is launched: memory that it does not release itself is live.
  void launched() { live_.merge(lasting()); }
  // From now on work on the stream is not ordered after all earlier work on it.
  void unordered(std::uint64_t stream);
  // The stream has ended: a new stream with its handle is not ordered after its work.
  void stream_ended(std::uint64_t stream);

  // --- Its outcome.

  bool has_events() const { return !events_.empty(); }
  CaptureMemory::Kind kind() const;
  // Requested sizes, by address, of what was not released in the capture itself.
  std::map<std::uint64_t, std::uint64_t> lasting() const;
  // How the driver would lay the graph's allocations out after a launch.
  GraphHeap heap() const;
  // Appends its events and outcome.
  void tell(CaptureMemory& memory) const;
  // Hands all of it over, leaving nothing.
  FormerMemory::Left leave(bool ran);

 private:
  // Slots of one size that the program has released on one stream.
  struct Released {
    std::uint64_t stream, size;
    auto operator<=>(const Released&) const = default;
  };

  std::optional<MemorySlot> planned(std::uint64_t stream, std::uint64_t asked);
  std::optional<MemorySlot> released(std::uint64_t stream, std::uint64_t size);
  void forget_released(std::uint64_t stream);

  Serve serve_ = Serve::again;
  bool asked_for_ = false, kept_to_plan_ = true;
  std::optional<std::uint64_t> bound_;
  std::shared_ptr<const CapturePlan> plan_;
  std::size_t allocations_ = 0;
  std::optional<CaptureHome> home_;  // once it has any memory
  std::vector<MemoryChunk> chunks_;
  MemoryChunk block_;                                        // of the plan
  std::uint64_t stream_ = 0;                                 // on which the plan's memory is allocated and released
  std::map<std::uint64_t, std::uint64_t> slots_;             // by address: size
  std::map<std::uint64_t, std::uint64_t> live_;              // see live()
  std::map<Released, std::vector<std::uint64_t>> released_;  // most recent last
  std::vector<CaptureMemory::Event> events_;
};

}  // namespace nimble::shim
