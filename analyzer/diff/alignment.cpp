#include "analyzer/diff/alignment.h"

#include <algorithm>

namespace nimble::analyzer {
namespace {

using Items = std::span<const std::uint64_t>;

// The pairs of a shortest edit script, the last first; empty and false if it has more than `most` edits.
bool shortest(Items a, Items b, std::uint32_t most, std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) {
  const auto n = static_cast<std::int64_t>(a.size()), m = static_cast<std::int64_t>(b.size());
  const std::int64_t bound = std::min<std::int64_t>(most, n + m);
  // How far along the first sequence one gets on diagonal k with d edits, for each d: diagonals -d to d.
  std::vector<std::vector<std::int64_t>> reached;
  const auto at = [&](std::int64_t d, std::int64_t k) -> std::int64_t {
    return reached[static_cast<std::size_t>(d)][static_cast<std::size_t>(k + d)];
  };
  // Where a path on diagonal k with d edits begins, after its last edit; whether that was an insertion.
  const auto begin = [&](std::int64_t d, std::int64_t k) -> std::pair<std::int64_t, bool> {
    if (d == 0) return {0, false};
    const bool inserts = k == -d || (k != d && at(d - 1, k - 1) < at(d - 1, k + 1));
    return {inserts ? at(d - 1, k + 1) : at(d - 1, k - 1) + 1, inserts};
  };
  std::int64_t d = 0;
  for (bool is_done = false; !is_done; ++d) {
    if (d > bound) return false;
    reached.emplace_back(static_cast<std::size_t>(2 * d + 1));
    for (std::int64_t k = -d; k <= d && !is_done; k += 2) {
      std::int64_t x = begin(d, k).first;
      while (x < n && x - k < m && x - k >= 0 && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(x - k)])
        ++x;
      reached.back()[static_cast<std::size_t>(k + d)] = x;
      is_done = x >= n && x - k >= m;
    }
  }
  std::int64_t k = n - m, x = n;
  for (--d; d >= 0; --d) {
    const auto [from, inserts] = begin(d, k);
    for (; x > from; --x) pairs.emplace_back(static_cast<std::uint32_t>(x - 1), static_cast<std::uint32_t>(x - 1 - k));
    x = inserts ? from : from - 1;
    k = inserts ? k + 1 : k - 1;
  }
  return true;
}

}  // namespace

Alignment align(Items first, Items second, std::uint32_t most) {
  Alignment result;
  const auto shorter = static_cast<std::uint32_t>(std::min(first.size(), second.size()));
  std::uint32_t front = 0, back = 0;
  while (front < shorter && first[front] == second[front]) ++front;
  while (front + back < shorter && first[first.size() - 1 - back] == second[second.size() - 1 - back]) ++back;
  for (std::uint32_t i = 0; i < front; ++i) result.matched.emplace_back(i, i);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> between;
  result.exact = shortest(first.subspan(front, first.size() - front - back),
                          second.subspan(front, second.size() - front - back), most, between);
  for (auto pair = between.rbegin(); pair != between.rend(); ++pair)
    result.matched.emplace_back(pair->first + front, pair->second + front);
  for (std::uint32_t i = back; i-- > 0;)
    result.matched.emplace_back(static_cast<std::uint32_t>(first.size()) - 1 - i,
                                static_cast<std::uint32_t>(second.size()) - 1 - i);
  return result;
}

}  // namespace nimble::analyzer
