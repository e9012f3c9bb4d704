// The last writers of every byte of one object, and the readers since then, as the ops of a step go by.
//
// Ranges split the object into pieces; rectangles with gaps between their rows are kept in a separate list, up to a
// limit; beyond it they count as their hulls. An ObjectHistory owns its pieces; one thread. Offsets in bytes. No
// errors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analyzer/memory/byte_rect.h"
#include "analyzer/step/happens_before.h"

namespace nimble::analyzer {

// Another access that the new one overlaps. `wrote`, `read`: what that one did.
struct AccessConflict {
  std::uint32_t op = 0;
  bool wrote = false, read = false;
  std::uint32_t access = 0;
};

class ObjectHistory {
 public:
  // Adds to `conflicts` every earlier access that shares bytes with this one, if either of them writes, and remembers
  // this one. Forgets earlier accesses that a write covers and that the program had ordered before it: whatever comes
  // after the write comes after them. An op's own accesses are not a conflict.
  void add(std::uint32_t op, std::uint32_t access, const ByteRect& rect, bool reads, bool writes,
           const HappensBefore& order, std::vector<AccessConflict>& conflicts);

  void clear() {
    pieces_.clear();
    rectangles_.clear();
  }

 private:
  struct Entry {
    std::uint32_t op, access;
  };
  struct Piece {
    std::uint64_t end = 0;
    std::vector<Entry> writers, readers;
  };
  struct Rectangle {
    ByteRect rect;
    std::uint32_t op, access;
    bool reads, writes;
  };

  void add_range(std::uint32_t op, std::uint32_t access, std::uint64_t begin, std::uint64_t end, bool reads,
                 bool writes, const HappensBefore& order, std::vector<AccessConflict>& conflicts);
  void split(std::uint64_t at);

  std::map<std::uint64_t, Piece> pieces_;  // by begin; disjoint
  std::vector<Rectangle> rectangles_;
};

}  // namespace nimble::analyzer
