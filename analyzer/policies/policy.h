// How the ops of a segment are spread over lanes (streams): one class per policy behind one interface.
//
// A Policy has no state; any thread may use it. It is given the minimum equivalent graph of the segment's dependencies.
// The nodes of one lane run in the order of their numbers. No errors, but for an unknown name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "analyzer/dag.h"

namespace nimble::analyzer {

struct Assignment {
  std::vector<std::uint32_t> lane;  // per node
  std::uint32_t lanes = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual Assignment assign(const Dag& reduced) const = 0;
};

// Every policy's name, the default first.
inline constexpr std::string_view kPolicyNames[] = {"nimble", "single", "levels", "greedy"};

// Null for a name that is none of them.
std::unique_ptr<Policy> make_policy(std::string_view name);

// The order that a schedule with these lanes enforces, without redundant edges: that of `reduced`, and that of each
// lane.
Dag enforced_order(const Dag& reduced, const Assignment& assignment);

// Edges that end on another lane than they begin: each costs a synchronisation.
std::uint32_t count_synchronizations(const Dag& enforced, const Assignment& assignment);

}  // namespace nimble::analyzer
