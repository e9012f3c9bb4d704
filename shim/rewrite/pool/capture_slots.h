// The memory of one capture: its chunks, the slots in them, and what the program has in each by now.
//
// By itself a slot is used again as soon as the program has released it, as caching allocators do: a graph that meets
// its memory again soon finds it in the device's cache, and may leave there what it needs the next time (H200:
// mobilenet_v2 at batch 1 takes 17 % longer where no memory is used twice). But nodes that have nothing else to do with
// each other then have to follow each other. A capture that the program makes to learn from gets every slot but once;
// and one that it makes again gets them where the plan of that graph has them (analyzer/plan/memory_plan.h), which
// shares memory only where the order of the graph's own allows it.
//
// A capture has kept to its plan only where it has allocated just what was planned, on one stream, and released all
// that lies in the plan's block before the next one got those bytes: memory that the program still has is never handed
// out.
//
// Calls nobody but FormerMemory. The table's lock guards it (capture_table.h).
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

// How a capture gets its slots: used again, each but once, or where a plan has them.
enum class Serve : std::uint8_t { again, once, planned };

class CaptureSlots {
 public:
  // Somebody wants the capture's memory to be of here, and as it is. Others are served `again`.
  void ask_for(Serve serve, std::shared_ptr<const CapturePlan> plan);
  bool is_asked_for() const { return asked_for_; }
  // It gets no more than so many bytes of chunks.
  void bound(std::uint64_t bytes) { bound_ = bytes; }
  const std::optional<std::uint64_t>& bound() const { return bound_; }
  // Whether its memory lies there: the first allocation says where.
  bool lies_in(const CaptureHome& home);
  const std::optional<CaptureHome>& home() const { return home_; }
  // Whether no two allocations share a byte; or only as its plan says, by which one of so many bytes comes next.
  bool serves_apart(std::uint64_t bytes) const;

  // --- An allocation: `asked` bytes, on the stream with this key.

  // The plan's block, as far as it is needed and not there: its size.
  std::optional<std::uint64_t> lacks_block() const;
  void add_block(const MemoryChunk& chunk);
  void add(const MemoryChunk& chunk) { chunks_.push_back(chunk); }
  const std::vector<MemoryChunk>& chunks() const { return chunks_; }
  const MemoryChunk& block() const { return block_; }
  // What it may have without any new slot: its place by the plan, or one that was released.
  std::optional<MemorySlot> use_again(std::uint64_t stream, std::uint64_t size, std::uint64_t asked);
  // A new slot, in the chunks that are there.
  std::optional<MemorySlot> take(std::uint64_t size, const FormerMemory& former);
  // What came of it, where the graph has so many nodes.
  void allocated(const std::optional<MemorySlot>& slot, std::size_t nodes, std::uint64_t asked);

  // --- What the program has.

  // Whether a slot begins there; whether an address lies in the chunks.
  bool has_slot(std::uint64_t address) const { return slots_.contains(address); }
  bool holds(std::uint64_t address) const;
  // By address: as asked for.
  const std::map<std::uint64_t, std::uint64_t>& live() const { return live_; }
  // The program releases it: in the capture, whose graph has so many nodes, or outside of it. False where nothing is
  // there.
  bool release(std::uint64_t address, std::uint64_t stream, std::optional<std::size_t> nodes);
  // The graph of another capture releases it. Likewise.
  bool release_behind_launch(std::uint64_t address) { return live_.erase(address) != 0; }
  // The graph is launched: what it does not release itself is there.
  void launched() { live_.merge(lasting()); }
  // What is put on the stream does not come behind all that was put on it before, any more.
  void unordered(std::uint64_t stream);
  // The stream has ended: what comes under its handle is another, which comes behind nothing of it.
  void stream_ended(std::uint64_t stream);

  // --- What has become of it.

  bool has_events() const { return !events_.empty(); }
  CaptureMemory::Kind kind() const;
  // What was not released in the capture itself, by address: as asked for.
  std::map<std::uint64_t, std::uint64_t> lasting() const;
  // As the driver would lay out what the graph allocates, when a launch of it is through.
  GraphHeap heap() const;
  // Appends its events, and so on.
  void tell(CaptureMemory& memory) const;
  // All of it, for whoever has it next. Nothing is left.
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
  std::map<Released, std::vector<std::uint64_t>> released_;  // the last of them last
  std::vector<CaptureMemory::Event> events_;
};

}  // namespace nimble::shim
