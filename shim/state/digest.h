// Memory contents as one digest per chunk of 4 KiB, and where two states differ.
//
// Pure; no driver. A digest cannot show a store of the value that was there already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble::shim {

inline constexpr std::size_t kProbeChunk = 4096;

// The chunks of one object, from its first byte on; the last may be short.
class ChunkDigests {
 public:
  // Appends the object's next bytes. Every piece but the last is a multiple of kProbeChunk long.
  void add(std::span<const std::uint8_t> piece);
  void clear() { chunks_.clear(); }
  const std::vector<std::uint64_t>& chunks() const { return chunks_; }

 private:
  std::vector<std::uint64_t> chunks_;
};

// Appends the ranges in which an object of `size` bytes at `base` differs between two states, as whole chunks, merging
// neighbours. States of different length differ throughout.
void append_changes(std::uint64_t base, std::uint64_t size, const ChunkDigests& before, const ChunkDigests& after,
                    std::vector<TraceAccess>& changes);

}  // namespace nimble::shim
