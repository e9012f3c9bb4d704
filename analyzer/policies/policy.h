// How the ops of a segment are assigned to lanes (streams): one class per policy, with one interface.
//
// A Policy has no state; any thread may use it. It is given the minimum equivalent graph of the segment's dependencies,
// and what is known about the ops. The nodes of one lane run in the order of their numbers. Nodes that may be
// communicating (analyzer/order/communication.h) are on one lane, whatever the policy; their dependencies put them in
// order, so that costs no concurrency if the lane is theirs alone. No errors, except for an unknown name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/model/predict.h"

namespace nimble::analyzer {

// Branches of one graph that a large GPU runs side by side at next to no cost (bench/results/*-graph-branches-*.json).
// The eight work queues that a process has by default do not bound the branches of a graph.
inline constexpr std::uint32_t kDefaultMaxLanes = 64;

struct Assignment {
  std::vector<std::uint32_t> lane;  // per node
  std::uint32_t lanes = 0;
  // Per node: which gets the multiprocessors first, from 0 to kMaxPriority. Empty if the policy does not say.
  std::vector<std::uint8_t> priority = {};
  // The order in which the nodes are to be made, topological and with every lane in its own order. Empty if the policy
  // does not say: then the critical ones come first.
  std::vector<std::uint32_t> order = {};
  bool operator==(const Assignment&) const = default;
};

// What a policy may look at besides the graph. Most use none of it.
struct Workload {
  std::span<const OpCost> costs;  // per node; empty if nothing is known
  DeviceModel device;
  std::uint32_t max_lanes = kDefaultMaxLanes;  // for policies that keep to a number of lanes
  // Per node: 1 for those that may be communicating. Empty if there are none.
  std::span<const std::uint8_t> communicate = {};
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  Assignment assign(const Dag& reduced, const Workload& work = {}) const;

 private:
  // The most lanes that it uses.
  virtual std::uint32_t most_lanes(const Workload& work) const = 0;
  virtual Assignment spread(const Dag& reduced, const Workload& work) const = 0;
};

// Every policy's name, the default first: what the command accepts, and what its report compares.
inline constexpr std::string_view kPolicyNames[] = {"cost", "nimble", "single", "levels", "greedy"};

// Null for an unknown name.
std::unique_ptr<Policy> make_policy(std::string_view name);

// Puts the nodes that `communicate` on one lane: their own, or, if there would be more lanes than `most`, that of the
// first of them. Does not change an assignment that has them on one lane.
void keep_on_one_lane(Assignment& assignment, std::span<const std::uint8_t> communicate, std::uint32_t most);

// The order that a schedule with these lanes enforces, without redundant edges: that of `reduced`, and that of each
// lane.
Dag enforced_order(const Dag& reduced, const Assignment& assignment);

// Edges that end on another lane than they start from: each costs a synchronisation.
std::uint32_t count_synchronizations(const Dag& enforced, const Assignment& assignment);

}  // namespace nimble::analyzer
