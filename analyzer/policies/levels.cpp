#include "analyzer/policies/levels.h"

#include <algorithm>

namespace nimble::analyzer {

std::vector<std::uint32_t> levels_of(const Dag& dag) {
  std::vector<std::uint32_t> level(dag.nodes(), 0);
  for (std::uint32_t node = 0; node < dag.nodes(); ++node)
    for (std::uint32_t from : dag.predecessors(node)) level[node] = std::max(level[node], level[from] + 1);
  return level;
}

Assignment LevelsPolicy::spread(const Dag& reduced, const Workload&) const {
  std::vector<std::uint32_t> level = levels_of(reduced), used(reduced.nodes(), 0);
  Assignment result{std::vector<std::uint32_t>(reduced.nodes()), 0};
  for (std::uint32_t node = 0; node < reduced.nodes(); ++node) {
    std::uint32_t lane = used[level[node]]++ % lanes_;
    result.lane[node] = lane;
    result.lanes = std::max(result.lanes, lane + 1);
  }
  return result;
}

}  // namespace nimble::analyzer
