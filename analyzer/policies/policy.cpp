#include "analyzer/policies/policy.h"

#include <algorithm>

#include "analyzer/policies/cost.h"
#include "analyzer/policies/greedy.h"
#include "analyzer/policies/levels.h"
#include "analyzer/policies/nimble.h"
#include "analyzer/policies/single.h"
#include "analyzer/reduce.h"
#include "nimble/trace.h"

namespace nimble::analyzer {

std::unique_ptr<Policy> make_policy(std::string_view name) {
  if (name == "nimble") return std::make_unique<NimblePolicy>();
  if (name == "cost") return std::make_unique<CostPolicy>();
  if (name == "single") return std::make_unique<SinglePolicy>();
  if (name == "levels") return std::make_unique<LevelsPolicy>();
  if (name == "greedy") return std::make_unique<GreedyPolicy>();
  return nullptr;
}

Dag enforced_order(const Dag& reduced, const Assignment& assignment) {
  std::vector<Dag::Edge> edges = reduced.edges();
  std::vector<std::uint32_t> last(assignment.lanes, kNone);
  bool more = false;
  for (std::uint32_t node = 0; node < reduced.nodes(); ++node) {
    std::uint32_t& previous = last[assignment.lane[node]];
    if (previous != kNone) {
      auto next = reduced.successors(previous);
      if (!std::binary_search(next.begin(), next.end(), node)) {
        edges.push_back({previous, node});
        more = true;
      }
    }
    previous = node;
  }
  return more ? transitive_reduction(Dag(reduced.nodes(), std::move(edges))) : reduced;
}

std::uint32_t count_synchronizations(const Dag& enforced, const Assignment& assignment) {
  return static_cast<std::uint32_t>(
      std::count_if(enforced.edges().begin(), enforced.edges().end(),
                    [&](const Dag::Edge& edge) { return assignment.lane[edge[0]] != assignment.lane[edge[1]]; }));
}

}  // namespace nimble::analyzer
