// A rectangle of bytes inside an object, and whether two of them overlap.
//
// Offsets, pitches, widths are bytes from the start of the object. Values; pure functions; any thread.
#pragma once

#include <cstdint>

namespace nimble::analyzer {

// `height` rows of `width` bytes, `pitch` bytes apart, the first at `begin`. A plain range has one row.
struct ByteRect {
  std::uint64_t begin = 0, width = 0, pitch = 0, height = 1;

  std::uint64_t end() const { return begin + (height - 1) * pitch + width; }
  bool is_range() const { return height == 1; }
  bool empty() const { return width == 0; }
  bool operator==(const ByteRect&) const = default;
};

// The same bytes, as one range if there are no gaps between the rows.
ByteRect normalized(ByteRect rect);

// Whether two regions share a byte. Exact for ranges, for a range and a rectangle, and for rectangles of the same
// pitch; rectangles of different pitches count as their hulls.
bool overlap(const ByteRect& a, const ByteRect& b);

}  // namespace nimble::analyzer
