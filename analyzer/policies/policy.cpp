#include "analyzer/policies/policy.h"

#include <algorithm>

#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/policies/cost_policy.h"
#include "analyzer/policies/greedy_policy.h"
#include "analyzer/policies/levels_policy.h"
#include "analyzer/policies/nimble_policy.h"
#include "analyzer/policies/single_policy.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

std::unique_ptr<Policy> make_policy(std::string_view name) {
  if (name == "nimble") return std::make_unique<NimblePolicy>();
  if (name == "cost") return std::make_unique<CostPolicy>();
  if (name == "single") return std::make_unique<SinglePolicy>();
  if (name == "levels") return std::make_unique<LevelsPolicy>();
  if (name == "greedy") return std::make_unique<GreedyPolicy>();
  return nullptr;
}

Assignment Policy::assign(const Dag& reduced, const Workload& work) const {
  Assignment assignment = spread(reduced, work);
  keep_on_one_lane(assignment, work.communicate, most_lanes(work));
  return assignment;
}

void keep_on_one_lane(Assignment& assignment, std::span<const std::uint8_t> communicate, std::uint32_t most) {
  std::vector<std::uint8_t> stays(assignment.lanes, 0);  // per lane: another node is on it
  std::uint32_t first = kNone;
  bool several = false;
  for (std::uint32_t node = 0; node < communicate.size(); ++node) {
    const std::uint32_t lane = assignment.lane[node];
    if (communicate[node] == 0) {
      stays[lane] = 1;
      continue;
    }
    several = several || (first != kNone && lane != first);
    if (first == kNone) first = lane;
  }
  if (!several) return;
  const auto staying = static_cast<std::uint32_t>(std::count(stays.begin(), stays.end(), std::uint8_t{1}));
  const bool apart = staying < most;
  // Lanes that have become empty are left out.
  std::vector<std::uint32_t> number(assignment.lanes, kNone);
  std::uint32_t lanes = 0, theirs = kNone;
  for (std::uint32_t node = 0; node < communicate.size(); ++node) {
    std::uint32_t* to = &theirs;
    if (communicate[node] == 0) to = &number[assignment.lane[node]];
    if (communicate[node] != 0 && !apart) to = &number[first];
    if (*to == kNone) *to = lanes++;
    assignment.lane[node] = *to;
  }
  assignment.lanes = lanes;
  assignment.order.clear();  // it may not be that of the lanes
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
