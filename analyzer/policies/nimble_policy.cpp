#include "analyzer/policies/nimble_policy.h"

#include "analyzer/graph/matching.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

Assignment NimblePolicy::spread(const Dag& reduced, const Workload&) const {
  std::uint32_t n = reduced.nodes();
  Matching matching = maximum_matching(n, n, [&](std::uint32_t node) { return reduced.successors(node); });
  Assignment result{std::vector<std::uint32_t>(n), 0};
  for (std::uint32_t node = 0; node < n; ++node) {
    std::uint32_t before = matching.left_of[node];  // smaller, since edges ascend
    result.lane[node] = before == kNone ? result.lanes++ : result.lane[before];
  }
  return result;
}

}  // namespace nimble::analyzer
