#include "analyzer/policies/levels_policy.h"

#include <algorithm>

#include "analyzer/graph/levels.h"

namespace nimble::analyzer {

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
