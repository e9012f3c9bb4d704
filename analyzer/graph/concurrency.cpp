#include "analyzer/graph/concurrency.h"

#include <algorithm>
#include <utility>

#include "analyzer/graph/levels.h"
#include "analyzer/graph/matching.h"

namespace nimble::analyzer {

CriticalPath critical_path(const Dag& dag, std::span<const double> duration_us) {
  std::vector<CriticalPath> until(dag.nodes());
  CriticalPath longest;
  for (std::uint32_t node = 0; node < dag.nodes(); ++node) {
    CriticalPath& path = until[node];
    for (std::uint32_t from : dag.predecessors(node))
      if (until[from].us > path.us || (until[from].us == path.us && until[from].nodes > path.nodes)) path = until[from];
    path.us += duration_us[node];
    ++path.nodes;
    if (path.us > longest.us || (path.us == longest.us && path.nodes > longest.nodes)) longest = path;
  }
  return longest;
}

Concurrency max_concurrency(const Dag& dag, std::span<const std::uint8_t> counts) {
  auto counted = static_cast<std::uint32_t>(std::count_if(counts.begin(), counts.end(), [](auto c) { return c != 0; }));
  std::uint32_t n = dag.nodes();
  if (counted > kMaxExactNodes || n > 4 * kMaxExactNodes) {
    std::vector<std::uint32_t> level = levels_of(dag), width(n, 0);
    std::uint32_t widest = 0;
    for (std::uint32_t node = 0; node < n; ++node)
      if (counts[node]) widest = std::max(widest, ++width[level[node]]);
    return {widest, false};
  }
  // The closure, as a bit set per node; a matching in it covers the nodes with the fewest chains.
  std::size_t words = (n + 63) / 64;
  std::vector<std::uint64_t> reached(words * n, 0);
  std::vector<std::vector<std::uint32_t>> after(n);
  for (std::uint32_t node = n; node-- > 0;) {
    std::uint64_t* mine = reached.data() + words * node;
    for (std::uint32_t to : dag.successors(node)) {
      const std::uint64_t* other = reached.data() + words * to;
      for (std::size_t w = to / 64; w < words; ++w) mine[w] |= other[w];
      mine[to / 64] |= std::uint64_t{1} << (to % 64);
    }
    if (!counts[node]) continue;
    for (std::size_t w = node / 64; w < words; ++w)
      for (std::uint64_t bits = mine[w]; bits != 0; bits &= bits - 1) {
        auto to = static_cast<std::uint32_t>(w * 64 + static_cast<std::size_t>(__builtin_ctzll(bits)));
        if (counts[to]) after[node].push_back(to);
      }
  }
  Matching matching = maximum_matching(n, n, [&](std::uint32_t node) { return std::span(std::as_const(after[node])); });
  return {counted - matching.size, true};
}

}  // namespace nimble::analyzer
