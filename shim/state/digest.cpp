#include "shim/state/digest.h"

#include <xxhash.h>

#include <algorithm>

namespace nimble::shim {

void ChunkDigests::add(std::span<const std::uint8_t> piece) {
  for (std::size_t at = 0; at < piece.size(); at += kProbeChunk)
    chunks_.push_back(XXH3_64bits(piece.data() + at, std::min(kProbeChunk, piece.size() - at)));
}

void append_changes(std::uint64_t base, std::uint64_t size, const ChunkDigests& before, const ChunkDigests& after,
                    std::vector<TraceAccess>& changes) {
  if (before.chunks().size() != after.chunks().size()) {
    if (size) changes.push_back({base, size, false, true});
    return;
  }
  bool open = false;  // whether the last appended range may be extended
  for (std::size_t i = 0; i < before.chunks().size(); ++i) {
    const bool differs = before.chunks()[i] != after.chunks()[i];
    const std::uint64_t begin = std::uint64_t{i} * kProbeChunk;
    const std::uint64_t bytes = std::min<std::uint64_t>(kProbeChunk, size - begin);
    if (differs && open) changes.back().bytes += bytes;
    if (differs && !open) changes.push_back({base + begin, bytes, false, true});
    open = differs;
  }
}

}  // namespace nimble::shim
