// Where the memory of captures comes from: where the driver would take it. That is the device's pool, where the program
// has put another into its place, or has let other devices reach it (they may be told to write there); else the device
// at once, in pieces that can be given back for a while (shim/rewrite/memory/backing.h) if it can be so.
//
// Owns what can be given back piece by piece; chunks are their user's, who releases them here. Remembers between which
// addresses all lies that it ever gave. No lock of its own; any thread; calls the driver, so under no lock.
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

  // A chunk of so many bytes; if the driver can, of `to_share` bytes instead, a part of which may go while nobody uses
  // it (0: no such one). Size 0 where there is none.
  MemoryChunk get(CaptureHome home, std::uint64_t bytes, std::uint64_t to_share);
  // Of the current context.
  void release(std::span<const MemoryChunk> chunks);
  // How much physical memory they have.
  std::uint64_t held(std::span<const MemoryChunk> chunks) const;
  // Whether what lies there may be of a chunk: false only where it is of none. Costs no lock.
  bool may_hold(std::uint64_t address) const {
    return address >= begin_.load(std::memory_order_relaxed) && address < end_.load(std::memory_order_relaxed);
  }

  Backing& backing() { return backing_; }

 private:
  CUresult ask_pool(CUdeviceptr& base, std::uint64_t bytes) const;
  void widen(const MemoryChunk& chunk);

  CallContext& context_;
  Backing backing_;
  // Between these lies all that ever was of here: a question about other memory, or its release, needs no lock.
  std::atomic<std::uint64_t> begin_{~std::uint64_t{0}}, end_{0};
};

}  // namespace nimble::shim
