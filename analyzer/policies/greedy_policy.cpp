#include "analyzer/policies/greedy_policy.h"

namespace nimble::analyzer {

Assignment GreedyPolicy::spread(const Dag& reduced, const Workload&) const {
  Assignment result{std::vector<std::uint32_t>(reduced.nodes()), 0};
  std::vector<bool> taken(reduced.nodes(), false);
  for (std::uint32_t node = 0; node < reduced.nodes(); ++node) {
    std::uint32_t lane = result.lanes;
    for (std::uint32_t from : reduced.predecessors(node))
      if (!taken[from]) {
        taken[from] = true;
        lane = result.lane[from];
        break;
      }
    if (lane == result.lanes) ++result.lanes;
    result.lane[node] = lane;
  }
  return result;
}

}  // namespace nimble::analyzer
