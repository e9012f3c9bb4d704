#include "shim/rewrite/memory/graph_heap.h"

#include <algorithm>

namespace nimble::shim {

void GraphHeap::allocate(std::uint64_t name, std::uint64_t bytes) {
  if (bytes == 0 || begin_.contains(name)) return;
  std::uint64_t at = 0;
  bool is_hole = false;
  for (const auto& [begin, size] : taken_) {
    is_hole = begin - at >= bytes;
    if (is_hole) break;
    at = begin + size;
  }
  if (!is_hole && bytes_ - at < bytes) bytes_ += (bytes + kPiece - 1) / kPiece * kPiece;
  taken_.emplace(at, bytes);
  begin_.emplace(name, at);
}

void GraphHeap::release(std::uint64_t name) {
  const auto found = begin_.find(name);
  if (found == begin_.end()) return;
  taken_.erase(found->second);
  begin_.erase(found);
}

std::uint64_t GraphHeap::held() const {
  std::uint64_t pieces = 0, next = 0;  // the first that is not counted yet
  for (const auto& [begin, size] : taken_) {
    const std::uint64_t first = std::max(begin / kPiece, next), end = (begin + size - 1) / kPiece + 1;
    if (end <= first) continue;
    pieces += end - first;
    next = end;
  }
  return pieces * kPiece;
}

}  // namespace nimble::shim
