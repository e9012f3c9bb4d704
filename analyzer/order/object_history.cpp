#include "analyzer/order/object_history.h"

#include <algorithm>

namespace nimble::analyzer {
namespace {

constexpr std::size_t kMaxRectangles = 256;

template <typename Entries>
void forget_ordered(Entries& entries, std::uint32_t op, const HappensBefore& order) {
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return entry.op == op || order.ordered(entry.op, op); }),
                entries.end());
}

}  // namespace

void ObjectHistory::split(std::uint64_t at) {
  auto next = pieces_.upper_bound(at);
  if (next == pieces_.begin()) return;
  auto piece = std::prev(next);
  if (piece->first == at || piece->second.end <= at) return;
  Piece tail = piece->second;
  piece->second.end = at;
  pieces_.emplace_hint(next, at, std::move(tail));
}

void ObjectHistory::add_range(std::uint32_t op, std::uint32_t access, std::uint64_t begin, std::uint64_t end,
                              bool reads, bool writes, const HappensBefore& order,
                              std::vector<AccessConflict>& conflicts) {
  split(begin);
  split(end);
  bool all_forgotten = true;
  std::uint64_t covered_to = begin;
  for (auto piece = pieces_.lower_bound(begin); piece != pieces_.end() && piece->first < end; ++piece) {
    if (piece->first > covered_to)  // a part that nothing has touched yet
      pieces_.emplace_hint(piece, covered_to, Piece{piece->first, {}, {}});
    covered_to = piece->second.end;
    for (const Entry& entry : piece->second.writers)
      if (entry.op != op) conflicts.push_back({entry.op, true, false, entry.access});
    if (!writes) continue;
    for (const Entry& entry : piece->second.readers)
      if (entry.op != op) conflicts.push_back({entry.op, false, true, entry.access});
    forget_ordered(piece->second.writers, op, order);
    forget_ordered(piece->second.readers, op, order);
    all_forgotten = all_forgotten && piece->second.writers.empty() && piece->second.readers.empty();
  }
  if (covered_to < end) pieces_.emplace(covered_to, Piece{end, {}, {}});

  auto first = pieces_.lower_bound(begin), last = pieces_.lower_bound(end);
  if (writes && all_forgotten) {
    // One writer for the whole range: its pieces become one again.
    first->second.end = end;
    pieces_.erase(std::next(first), last);
    first->second.writers.push_back({op, access});
    return;
  }
  for (auto piece = first; piece != last; ++piece) {
    auto& entries = writes ? piece->second.writers : piece->second.readers;
    if (entries.empty() || entries.back().op != op) entries.push_back({op, access});
  }
}

// One walk over the pieces that splits, compares and merges them in passing.
void ObjectHistory::add(std::uint32_t op, std::uint32_t access, const ByteRect& rect, bool reads, bool writes,
                        const HappensBefore& order, std::vector<AccessConflict>& conflicts) {
  if (rect.empty()) return;
  ByteRect hull{rect.begin, rect.end() - rect.begin, 0, 1};
  bool as_rectangle = !rect.is_range() && rectangles_.size() < kMaxRectangles;
  const ByteRect& shape = as_rectangle ? rect : hull;
  for (const Rectangle& other : rectangles_)
    if (other.op != op && (writes || other.writes) && overlap(shape, other.rect))
      conflicts.push_back({other.op, other.writes, other.reads, other.access});
  if (writes)
    rectangles_.erase(std::remove_if(rectangles_.begin(), rectangles_.end(),
                                     [&](const Rectangle& other) {
                                       bool covered = shape == other.rect ||
                                                      (shape.is_range() && shape.begin <= other.rect.begin &&
                                                       other.rect.end() <= shape.end());
                                       return covered && order.ordered(other.op, op);
                                     }),
                      rectangles_.end());
  if (!as_rectangle) {
    add_range(op, access, hull.begin, hull.end(), reads, writes, order, conflicts);
    return;
  }
  auto piece = pieces_.upper_bound(rect.begin);
  if (piece != pieces_.begin()) --piece;
  for (; piece != pieces_.end() && piece->first < rect.end(); ++piece) {
    ByteRect part{piece->first, piece->second.end - piece->first, 0, 1};
    if (piece->second.writers.empty() && piece->second.readers.empty()) continue;
    if (!overlap(rect, part)) continue;
    for (const Entry& entry : piece->second.writers)
      if (entry.op != op) conflicts.push_back({entry.op, true, false, entry.access});
    if (!writes) continue;
    for (const Entry& entry : piece->second.readers)
      if (entry.op != op) conflicts.push_back({entry.op, false, true, entry.access});
  }
  rectangles_.push_back({rect, op, access, reads, writes});
}

}  // namespace nimble::analyzer
