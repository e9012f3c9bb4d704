// Memory of captures that are over. Each chunk is in one of two states:
//
// Retired: nothing can use it any more. It goes back to the driver with the next sweep(), which may wait for the GPU,
// and so is called when the program has just done so itself.
//
// Spare: memory of a capture that failed, or whose graph was destroyed without a launch. It never existed for the
// program, which cannot use it but may still release it, as frameworks do whose tensors live longer. So it goes to
// later captures, but not at addresses where such abandoned allocations began, since a release names only where memory
// begins. Once all of those are released the chunk is retired.
//
// Owns that memory, and the count of events of captures' memory. One lock, taken under that of the captures' table
// (capture_table.h), before that of Backing, and never held while the driver is called. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "shim/rewrite/pool/capture_memory.h"
#include "shim/rewrite/pool/chunk_source.h"

namespace nimble::shim {

class FormerMemory {
 public:
  // `source` must outlive it.
  explicit FormerMemory(ChunkSource& source) : source_(source) {}

  // --- For returning memory.

  // A moment: rises whenever memory is retired, or transient memory used. Whether anything is retired; and in this
  // context.
  std::uint64_t moment() const { return moments_.load(std::memory_order_acquire); }
  std::atomic<std::uint64_t>& moments() { return moments_; }
  bool has_retired() const { return any_retired_.load(std::memory_order_relaxed); }
  bool has_retired_in(CUcontext context) const;
  // Returns the current context's memory that was retired in the first so many moments to the driver. Returns the slots
  // that were in it; `going` is told of them before the memory can be reallocated, without our lock.
  using Going = std::function<void(const std::vector<MemorySlot>&)>;
  std::vector<MemorySlot> sweep(std::uint64_t first, const Going& going = {});
  // Whether there is new spare memory that captures may not get yet; makes it available to them. As sweep().
  bool has_spare() const { return any_spare_.load(std::memory_order_relaxed); }
  std::vector<MemorySlot> reuse(const Going& going = {});

  // --- For captures.

  // What an ended capture leaves: its memory, the slots in it, and where the program may still release some. `ran`: the
  // GPU may be using it.
  struct Left {
    CaptureHome home;
    std::vector<MemoryChunk> chunks;
    std::map<std::uint64_t, std::uint64_t> slots;  // by address: size
    std::vector<std::uint64_t> abandoned;
    bool ran = false;
  };
  void take_over(Left left);
  // Spare memory with room for so much.
  std::optional<MemoryChunk> take_spare(const CaptureHome& home, std::uint64_t size);
  // The offset of the next slot of that size in a chunk: not where an abandoned allocation begins. Nothing if there is
  // no room.
  std::optional<std::uint64_t> place_in(const MemoryChunk& chunk, std::uint64_t size) const;
  // The program releases what begins there. Whether that was an abandoned allocation.
  bool release_abandoned(std::uint64_t address);
  // Whether a retired slot begins there; or that or an abandoned allocation.
  bool has_retired_at(std::uint64_t address) const;
  bool begins_at(std::uint64_t address) const;
  // Whether an address lies in it.
  bool holds(std::uint64_t address) const;
  // How much of a context's memory is retired; and how much there is in total.
  std::uint64_t retired_bytes(CUcontext context) const;
  std::uint64_t held(CUcontext context) const;
  // Forgets a context's memory, or all (null); and what is abandoned in these chunks.
  void context_ends(CUcontext context, const std::vector<MemoryChunk>& others);

  // The alignment of the driver's pools.
  static constexpr std::uint64_t kAlignment = 512;

 private:
  struct Retired {
    CaptureHome home;
    std::vector<MemoryChunk> chunks;
    std::map<std::uint64_t, std::uint64_t> slots;  // by address: size
    std::uint64_t moment = 0;
  };
  struct Spare {
    CaptureHome home;
    MemoryChunk chunk;
    bool ready = false;  // its slots have been reported, or
    bool told = false;   // are being
  };

  void retire(Retired retired);
  bool is_abandoned(const MemoryChunk& chunk) const;
  std::optional<std::uint64_t> find_place(const MemoryChunk& chunk, std::uint64_t size) const;

  ChunkSource& source_;
  std::atomic<bool> any_retired_{false}, any_spare_{false};
  std::atomic<std::uint64_t> moments_{0};
  mutable std::mutex mutex_;  // guards all below
  std::vector<Retired> retired_;
  std::vector<Spare> spare_;
  std::vector<MemorySlot> spare_slots_;  // of what is not ready
  std::set<std::uint64_t> abandoned_;    // where abandoned allocations begin that were not released
};

}  // namespace nimble::shim
