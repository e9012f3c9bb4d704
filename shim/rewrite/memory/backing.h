// Memory for captures that can be unbacked in part while it is unused (memory/transient_memory.h): address ranges in
// pieces, each backed by physical memory or not.
//
// Owns all of it. One lock, never held while the driver is called. Any thread; but only one thread at a time may change
// a piece's backing, while nothing runs that touches it, and not when its range is being released.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/rewrite/memory/mapping.h"

namespace nimble::shim {

class Backing {
 public:
  struct Piece {
    std::uint64_t address = 0, bytes = 0;
  };

  explicit Backing(CallContext& context) : context_(context), mapping_(context) {}

  // At least `bytes` of memory of the current context's device, for that context: its address and size; size 0 if there
  // is none.
  Piece get(std::uint64_t bytes, CUcontext context);
  // False if none of these ranges begins there.
  bool release(std::uint64_t address);
  // The context is about to end; or it has ended with all that may have touched its memory. If it has not ended,
  // unknown work may touch the memory, which therefore stays.
  void context_ends(CUcontext context);
  void context_ended(CUcontext context, bool good);

  // How much physical memory the range has; nothing if none of these ranges begins there.
  std::optional<std::uint64_t> held(std::uint64_t address) const;
  // That memory's device.
  std::optional<CUdevice> device(std::uint64_t address) const;
  // The pieces that lie entirely in it.
  std::vector<Piece> pieces(std::uint64_t begin, std::uint64_t end) const;
  // Backs all of these pieces, with undefined content where backing was missing. False if it cannot.
  bool fill(std::span<const Piece> pieces);
  // Unbacks them. Returns how many bytes the device regained; what the driver refuses stays.
  std::uint64_t empty(std::span<const Piece> pieces);

 private:
  struct Range {
    std::uint64_t bytes = 0;
    CUdevice device = 0;
    CUcontext context = nullptr;
    struct Held {
      std::uint64_t bytes = 0;
      std::optional<Physical> physical;
    };
    std::map<std::uint64_t, Held> pieces;  // by address
  };

  bool fill(std::uint64_t address, std::uint64_t bytes, CUdevice device, std::optional<Physical>& physical) const;
  Range* find(std::uint64_t address);
  void release(std::uint64_t address, const Range& range) const;

  CallContext& context_;
  const Mapping mapping_;
  mutable std::mutex mutex_;               // guards all below
  std::map<std::uint64_t, Range> ranges_;  // by address
  std::map<std::uint64_t, Range> ending_;  // whose context is about to end
};

}  // namespace nimble::shim
