#include "shim/check/protection.h"

#include <cstddef>

namespace nimble::shim {

std::vector<ProtectionChange> protection_changes(std::span<const ProtectedPiece> pieces) {
  std::vector<ProtectionChange> changes;
  for (std::size_t first = 0; first < pieces.size();) {
    // The run [first, end), and in it [from, to), outside of which all is as wanted.
    std::size_t end = first, from = pieces.size(), to = first;
    for (; end < pieces.size(); ++end) {
      const ProtectedPiece& piece = pieces[end];
      const bool goes_on =
          end == first || (piece.range == pieces[first].range && piece.wanted == pieces[first].wanted &&
                           piece.address == pieces[end - 1].address + pieces[end - 1].bytes);
      if (!goes_on) break;
      if (piece.now == piece.wanted) continue;
      if (from == pieces.size()) from = end;
      to = end + 1;
    }
    if (from < to) {
      const std::uint64_t begin = pieces[from].address;
      changes.push_back({begin, pieces[to - 1].address + pieces[to - 1].bytes - begin, pieces[first].wanted});
    }
    first = end;
  }
  return changes;
}

}  // namespace nimble::shim
