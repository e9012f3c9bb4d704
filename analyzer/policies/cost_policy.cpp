#include "analyzer/policies/cost_policy.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "analyzer/model/makespan.h"
#include "analyzer/policies/segment_plan.h"
#include "nimble/internal/schedule.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {
namespace {

// Per node, the longest path from its start to the end of the graph, including its own duration and the edges.
std::vector<double> rest_of(const Dag& dag, std::span<const OpCost> costs, double edge_us) {
  std::vector<double> rest(dag.nodes());
  for (std::uint32_t node = dag.nodes(); node-- > 0;) {
    double longest = 0;
    for (std::uint32_t to : dag.successors(node)) longest = std::max(longest, edge_us + rest[to]);
    rest[node] = costs[node].device_us + longest;
  }
  return rest;
}

// By how much each node may be late without the graph being late: the less, the higher its priority.
std::vector<std::uint8_t> priorities(const Dag& dag, std::span<const OpCost> costs, double edge_us) {
  constexpr double kSlack[kMaxPriority] = {0.001, 0.03, 0.1, 0.25, 0.5};  // of the critical path
  std::vector<double> rest = rest_of(dag, costs, edge_us), from(dag.nodes(), 0);
  double longest = dag.nodes() == 0 ? 0 : *std::max_element(rest.begin(), rest.end());
  std::vector<std::uint8_t> result(dag.nodes(), 0);
  for (std::uint32_t node = 0; node < dag.nodes(); ++node) {
    for (std::uint32_t before : dag.predecessors(node))
      from[node] = std::max(from[node], from[before] + costs[before].device_us + edge_us);
    double slack = longest - from[node] - rest[node];
    auto level = std::lower_bound(std::begin(kSlack), std::end(kSlack), slack / longest) - std::begin(kSlack);
    result[node] = static_cast<std::uint8_t>(kMaxPriority - static_cast<std::uint32_t>(level));
  }
  return result;
}

// Beyond so many nodes fewer ways are tried, and nothing takes more than near linear time.
constexpr std::uint32_t kLarge = 4096;

struct ListRules {
  bool by_device = false;      // consider when the device gets to an op, not only when its predecessors are done
  bool one_bandwidth = false;  // put an op that is bound by bandwidth after another that runs at the time
};

// Assigns nodes to lanes in program order, each to where it can start first.
class ListScheduler {
 public:
  ListScheduler(const Dag& dag, std::span<const OpCost> costs, double edge_us, std::uint32_t max_lanes,
                const std::vector<double>& device_ends)
      : dag_(dag),
        costs_(costs),
        edge_us_(edge_us),
        max_lanes_(max_lanes),
        device_ends_(device_ends),
        heir_(dag.nodes(), kNone) {
    std::vector<double> rest = rest_of(dag, costs, edge_us);
    for (std::uint32_t node = 0; node < dag.nodes(); ++node)
      for (std::uint32_t to : dag.successors(node))
        if (heir_[node] == kNone || rest[to] > rest[heir_[node]]) heir_[node] = to;
  }

  Assignment run(const ListRules& rules) {
    Assignment result{std::vector<std::uint32_t>(dag_.nodes()), 0, {}};
    lanes_.clear();
    ends_.assign(dag_.nodes(), 0);
    for (std::uint32_t node = 0; node < dag_.nodes(); ++node) {
      double ready = 0;
      std::uint32_t critical = kNone;  // the predecessor that is done last
      for (std::uint32_t before : dag_.predecessors(node))
        if (critical == kNone || ends_[before] > ends_[critical]) critical = before;
      if (critical != kNone) ready = ends_[critical] + edge_us_;
      std::uint32_t lane = choose(node, critical, ready, rules);
      if (lane == lanes_.size()) lanes_.push_back(kNone);
      double start = ready;
      if (lanes_[lane] != kNone) start = std::max(start, ends_[lanes_[lane]] + edge_us_);
      ends_[node] = start + costs_[node].device_us;
      if (rules.by_device) ends_[node] = std::max(ends_[node], device_ends_[node]);
      lanes_[lane] = node;
      result.lane[node] = lane;
    }
    result.lanes = static_cast<std::uint32_t>(lanes_.size());
    return result;
  }

 private:
  // The lane for a node: the preferences one after another, the first that a lane meets decides.
  std::uint32_t choose(std::uint32_t node, std::uint32_t critical, double ready, const ListRules& rules) const {
    std::uint32_t lanes = static_cast<std::uint32_t>(lanes_.size());
    auto free_at = [&](std::uint32_t lane) { return ends_[lanes_[lane]] + edge_us_; };
    if (rules.one_bandwidth && is_bandwidth_bound(costs_[node]))
      for (std::uint32_t lane = 0; lane < lanes; ++lane)
        if (is_bandwidth_bound(costs_[lanes_[lane]]) && ends_[lanes_[lane]] > ready) return lane;
    // The lane of the predecessor that it waits for, unless that lane is for a more critical one.
    if (critical != kNone && heir_[critical] == node)
      for (std::uint32_t lane = 0; lane < lanes; ++lane)
        if (lanes_[lane] == critical) return lane;
    // A lane that is idle then and reserved for no other: that of a predecessor, else the one that became idle last.
    std::uint32_t best = kNone, first = kNone;
    bool best_is_before = false;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      if (first == kNone || free_at(lane) < free_at(first)) first = lane;
      std::uint32_t last = lanes_[lane];
      bool kept = heir_[last] != kNone && heir_[last] > node;
      if (free_at(lane) > ready + edge_us_ || kept) continue;
      auto before = dag_.predecessors(node);
      bool is_before = std::binary_search(before.begin(), before.end(), last);
      if (best == kNone || (is_before && !best_is_before) ||
          (is_before == best_is_before && free_at(lane) > free_at(best))) {
        best = lane;
        best_is_before = is_before;
      }
    }
    if (best != kNone) return best;
    return lanes < max_lanes_ ? lanes : first;
  }

  const Dag& dag_;
  std::span<const OpCost> costs_;
  double edge_us_;
  std::uint32_t max_lanes_;
  const std::vector<double>& device_ends_;
  std::vector<std::uint32_t> heir_;   // per node the most critical successor
  std::vector<std::uint32_t> lanes_;  // per lane the last node
  std::vector<double> ends_;
};

// Merges the lanes of a plan until there are no more than `max_lanes`: each is appended to one that is done before this
// one could start anyway, by the plan's timeline. That delays nothing, and in the order of the timeline the device
// would do the same as before. If there is none, it is appended to the one that is done first, and the order is lost.
Assignment brought_down(const SegmentPlan& plan, const Timeline& times, std::uint32_t max_lanes, double edge_us) {
  Assignment result = plan.assignment;
  result.order = plan.order;
  std::stable_sort(result.order.begin(), result.order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return times.begin_us[a] < times.begin_us[b]; });
  std::vector<std::uint32_t> last(result.lanes, kNone), to(result.lanes, kNone);
  for (std::uint32_t node = 0; node < result.lane.size(); ++node) last[result.lane[node]] = node;
  struct Lane {
    std::uint32_t last = 0;
    double end_us = 0;
  };
  std::vector<Lane> lanes;
  for (std::uint32_t node = 0; node < result.lane.size(); ++node) {
    std::uint32_t& target = to[result.lane[node]];
    if (target == kNone) {
      double ready = 0;
      for (std::uint32_t from : plan.enforced.predecessors(node)) ready = std::max(ready, times.end_us[from] + edge_us);
      std::uint32_t best = kNone, first = 0;
      for (std::uint32_t l = 0; l < lanes.size(); ++l) {
        if (lanes[l].end_us < lanes[first].end_us) first = l;
        if (lanes[l].last < node && lanes[l].end_us + edge_us <= ready &&
            (best == kNone || lanes[l].end_us > lanes[best].end_us))
          best = l;
      }
      if (best == kNone && lanes.size() < max_lanes) {
        best = static_cast<std::uint32_t>(lanes.size());
        lanes.emplace_back();
      }
      if (best == kNone) {
        best = first;
        result.order.clear();
      }
      target = best;
      std::uint32_t end = last[result.lane[node]];
      lanes[target].last = std::max(lanes[target].last, end);
      lanes[target].end_us = std::max(lanes[target].end_us, times.end_us[end]);
    }
    result.lane[node] = target;
  }
  result.lanes = static_cast<std::uint32_t>(lanes.size());
  return result;
}

// Keeps the best of what it is shown.
class Choice {
 public:
  Choice(const Dag& reduced, std::span<const OpCost> costs, const Workload& work)
      : reduced_(reduced), costs_(costs), device_(work.device), communicate_(work.communicate) {}

  // As it is, and with priorities; if it has too many lanes, reduced according to the timeline in either case.
  // What it was shown before never becomes the best when it is shown again.
  void consider(Assignment assignment, std::uint32_t max_lanes) {
    if (communicate_.empty() && assignment.lanes <= max_lanes) {
      if (std::ranges::find(seen_, assignment) != seen_.end()) return;
      seen_.push_back(assignment);
    }
    keep_on_one_lane(assignment, communicate_, std::max(assignment.lanes, max_lanes));
    Timeline times;
    SegmentPlan plan = make_plan(device_, reduced_, costs_, std::move(assignment), times);
    for (bool with : {false, true}) {
      if (with) {
        plan.assignment.priority = priorities(plan.enforced, costs_, device_.graph_edge_us);
        plan.predicted_us =
            predict_makespan(device_, plan.enforced, costs_, plan.order, plan.assignment.priority, times);
      }
      if (plan.assignment.lanes <= max_lanes) {
        keep(plan);
        continue;
      }
      Assignment fewer = brought_down(plan, times, max_lanes, device_.graph_edge_us);
      if (!fewer.order.empty()) keep(make_plan(device_, reduced_, costs_, fewer));
      fewer.order.clear();
      fewer.priority.clear();
      consider(std::move(fewer), max_lanes);
    }
  }
  Assignment take() { return std::move(best_); }

 private:
  void keep(const SegmentPlan& plan) {
    double equal = 1e-9 * plan.predicted_us;
    auto rank = [](std::uint32_t synchronizations, const Assignment& assignment) {
      return std::tuple(synchronizations, assignment.lanes, !assignment.priority.empty());
    };
    bool better = best_us_ < 0 || plan.predicted_us < best_us_ - equal ||
                  (plan.predicted_us <= best_us_ &&
                   rank(plan.synchronizations, plan.assignment) < rank(synchronizations_, best_));
    if (!better) return;
    best_ = plan.assignment;
    best_us_ = plan.predicted_us;
    synchronizations_ = plan.synchronizations;
  }

  const Dag& reduced_;
  std::span<const OpCost> costs_;
  const DeviceModel& device_;
  std::span<const std::uint8_t> communicate_;
  std::vector<Assignment> seen_;
  Assignment best_;
  double best_us_ = -1;
  std::uint32_t synchronizations_ = 0;
};

}  // namespace

Assignment CostPolicy::spread(const Dag& reduced, const Workload& work) const {
  std::vector<OpCost> unknown;
  std::span<const OpCost> costs = work.costs;
  if (costs.empty()) {
    OpCost one;
    one.device_us = 1;
    unknown.assign(reduced.nodes(), one);
    costs = unknown;
  }
  std::vector<double> durations;
  Timeline times;
  for (const OpCost& cost : costs) durations.push_back(cost.device_us);
  predict_makespan(work.device, reduced, costs, critical_first(reduced, durations), {}, times);

  Choice choice(reduced, costs, work);
  std::vector<Assignment> others;
  for (std::string_view other : kPolicyNames)
    if (other != name()) others.push_back(make_policy(other)->assign(reduced, work));
  std::uint32_t max_lanes = std::max(work.max_lanes, 1u);
  bool large = reduced.nodes() > kLarge;
  // Also with fewer lanes: more are not always better.
  for (std::uint32_t lanes = max_lanes; lanes > 0; lanes = large ? 0 : lanes / 2) {
    for (const Assignment& other : others) choice.consider(other, lanes);
    ListScheduler lists(reduced, costs, work.device.graph_edge_us, lanes, times.end_us);
    for (bool by_device : {false, true})
      for (bool one_bandwidth : {false, true}) choice.consider(lists.run({by_device, one_bandwidth}), lanes);
  }
  return choice.take();
}

}  // namespace nimble::analyzer
