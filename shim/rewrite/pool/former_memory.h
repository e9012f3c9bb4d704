// Memory of captures that are over. Each chunk is in one of two states:
//
// Retired: nobody can use it any more. It goes back to the driver with the next sweep(): that may wait for the GPU, so
// it is for when the program has just done so itself.
//
// Spare: memory of a capture that failed, or whose graph went and was never launched, never was there: the program has
// no use for it, but may still release it, as frameworks do whose tensors live longer. So it goes to later captures,
// none of which gets memory that begins where something of it did (it is abandoned): a release says no more than where
// memory begins. Once all of that is released the chunk is retired.
//
// Owns that memory, and the count of what happens to memory of captures. One lock, taken under that of the captures'
// table (capture_table.h), before that of Backing, and never held while the driver is called. Any thread.
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

  // --- For who gives memory back.

  // Rises whenever anything is retired, or transient memory used: a moment. Whether anything is retired; and of this
  // context.
  std::uint64_t moment() const { return moments_.load(std::memory_order_acquire); }
  std::atomic<std::uint64_t>& moments() { return moments_; }
  bool has_retired() const { return any_retired_.load(std::memory_order_relaxed); }
  bool has_retired_in(CUcontext context) const;
  // Gives what is retired of the current context back to the driver, as far as it was within the first so many moments.
  // Returns the slots that were in it; `going` is told of them before anybody else may get the memory, without our
  // lock.
  using Going = std::function<void(const std::vector<MemorySlot>&)>;
  std::vector<MemorySlot> sweep(std::uint64_t first, const Going& going = {});
  // Whether there is spare memory which no other capture has got yet; from here on they may. As sweep().
  bool has_spare() const { return any_spare_.load(std::memory_order_relaxed); }
  std::vector<MemorySlot> reuse(const Going& going = {});

  // --- For captures.

  // What a capture leaves that is over: its memory, the slots in it, and where the program may still release something
  // of it. `ran`: the GPU may be at work in it.
  struct Left {
    CaptureHome home;
    std::vector<MemoryChunk> chunks;
    std::map<std::uint64_t, std::uint64_t> slots;  // by address: size
    std::vector<std::uint64_t> abandoned;
    bool ran = false;
  };
  void take_over(Left left);
  // Spare memory in which so much has room.
  std::optional<MemoryChunk> take_spare(const CaptureHome& home, std::uint64_t size);
  // Where the next slot of that size begins in a chunk, from its base: not where the program may release what never
  // was there. Nothing where there is no room.
  std::optional<std::uint64_t> place_in(const MemoryChunk& chunk, std::uint64_t size) const;
  // The program releases what begins there. Whether that is something that never was.
  bool release_abandoned(std::uint64_t address);
  // Whether a slot that is retired begins there; or that, or something that never was.
  bool has_retired_at(std::uint64_t address) const;
  bool begins_at(std::uint64_t address) const;
  // Whether an address lies in it.
  bool holds(std::uint64_t address) const;
  // How much of a context is retired; and how much there is of it at all.
  std::uint64_t retired_bytes(CUcontext context) const;
  std::uint64_t held(CUcontext context) const;
  // Forgets what is of a context, or all (null); and what is abandoned in these.
  void context_ends(CUcontext context, const std::vector<MemoryChunk>& others);

  // As pools of the driver align.
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
    bool ready = false;  // its slots have been told of, or
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
  std::set<std::uint64_t> abandoned_;    // where memory began that never was there, as far as it was not released
};

}  // namespace nimble::shim
