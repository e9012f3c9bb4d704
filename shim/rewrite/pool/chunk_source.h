// Where captures' memory comes from: from where the driver would take it. That is the device's pool if the program has
// replaced it, or has let other devices access it (they may be told to write there); else the device directly, if
// possible in pieces that can be unbacked (shim/rewrite/memory/backing.h).
//
// Owns the memory that can be unbacked piece by piece; users own chunks, and release them here. Remembers the bounds of
// all addresses that it ever gave. No lock of its own; any thread; calls the driver, so must not be called under a
// lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/rewrite/memory/backing.h"
#include "shim/rewrite/pool/capture_memory.h"

namespace nimble::shim {

class ChunkSource {
 public:
  explicit ChunkSource(CallContext& context) : context_(context), backing_(context) {}

  // A chunk of so many bytes; if the driver can, of `to_share` bytes instead, which may be unbacked in part while
  // unused (0: not that). Size 0 if there is none.
  MemoryChunk get(CaptureHome home, std::uint64_t bytes, std::uint64_t to_share);
  // Those of the current context.
  void release(std::span<const MemoryChunk> chunks);
  // How much physical memory they have.
  std::uint64_t held(std::span<const MemoryChunk> chunks) const;
  // Whether the address may be in a chunk: false only if it is in none. Takes no lock.
  bool may_hold(std::uint64_t address) const {
    return address >= begin_.load(std::memory_order_relaxed) && address < end_.load(std::memory_order_relaxed);
  }

  Backing& backing() { return backing_; }

 private:
  CUresult ask_pool(CUdeviceptr& base, std::uint64_t bytes) const;
  void widen(const MemoryChunk& chunk);

  CallContext& context_;
  Backing backing_;
  // The bounds of all memory ever given: queries about other memory, or its release, need no lock.
  std::atomic<std::uint64_t> begin_{~std::uint64_t{0}}, end_{0};
};

}  // namespace nimble::shim
