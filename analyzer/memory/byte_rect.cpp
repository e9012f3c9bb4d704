#include "analyzer/memory/byte_rect.h"

#include <algorithm>

namespace nimble::analyzer {
namespace {

using Wide = __int128;

Wide floor_divide(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

bool range_meets_rows(std::uint64_t begin, std::uint64_t end, const ByteRect& rows) {
  // The first row that ends after the range's beginning must begin before the range's end.
  Wide row = floor_divide(Wide{begin} - Wide{rows.begin} - Wide{rows.width}, Wide{rows.pitch}) + 1;
  row = std::max<Wide>(row, 0);
  return row < Wide{rows.height} && Wide{rows.begin} + row * Wide{rows.pitch} < Wide{end};
}

}  // namespace

ByteRect normalized(ByteRect rect) {
  if (rect.height > 1 && rect.pitch == rect.width) {
    rect.width *= rect.height;
    rect.height = 1;
  }
  if (rect.height == 1) rect.pitch = 0;
  return rect;
}

bool overlap(const ByteRect& a, const ByteRect& b) {
  if (a.empty() || b.empty() || a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.is_range() && b.is_range()) return true;
  if (a.is_range()) return range_meets_rows(a.begin, a.end(), b);
  if (b.is_range()) return range_meets_rows(b.begin, b.end(), a);
  if (a.pitch != b.pitch) return true;
  // Row i of a meets row j of b where delta + (j - i) * pitch lies in (-b.width, a.width).
  Wide delta = Wide{b.begin} - Wide{a.begin}, pitch = Wide{a.pitch};
  Wide lowest = floor_divide(-Wide{b.width} - delta, pitch) + 1;
  Wide highest = floor_divide(Wide{a.width} - delta - 1, pitch);
  return std::max<Wide>(lowest, -(Wide{a.height} - 1)) <= std::min<Wide>(highest, Wide{b.height} - 1);
}

}  // namespace nimble::analyzer
