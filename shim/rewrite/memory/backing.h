// The memory that captures get of which a part may go while nobody uses it (memory/transient.h): ranges of addresses in
// pieces, and physical memory behind each piece, or nothing.
//
// Owns all of it. One lock, never held while the driver is called. Any thread; but what lies behind a piece is changed
// by one thread at a time, while nothing runs that touches it, and not when its range is released.
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

  // So much memory of the current context's device, or somewhat more, for that context: where it begins and how large
  // it is; size 0 where there is none.
  Piece get(std::uint64_t bytes, CUcontext context);
  // False where no range of here begins there.
  bool release(std::uint64_t address);
  // The context is about to end, or has ended with all that may have touched its memory; if it has not, nobody knows
  // who does, and the memory stays.
  void context_ends(CUcontext context);
  void context_ended(CUcontext context, bool good);

  // How much physical memory the range has; nothing where none of here begins there.
  std::optional<std::uint64_t> held(std::uint64_t address) const;
  // Of which device that is.
  std::optional<CUdevice> device(std::uint64_t address) const;
  // The pieces that lie in it as a whole.
  std::vector<Piece> pieces(std::uint64_t begin, std::uint64_t end) const;
  // Whether something lies behind all of these from here on: what was missing is made, with no particular content.
  bool fill(std::span<const Piece> pieces);
  // From here on nothing does. How much that gave the device; what the driver refuses stays.
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
