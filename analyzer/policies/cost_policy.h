// Uses what the ops cost: a limited number of lanes, the critical path on a lane of its own and first in line for the
// multiprocessors, ops that are bound by the memory's bandwidth one after the other.
//
// It assigns the ops to lanes by list scheduling, in several ways, adds what the other policies do, reduced to the same
// number of lanes, and keeps the one that is predicted to end first; among equals, the one that synchronises least. So
// if another policy keeps to that number of lanes, this one is predicted to be no worse. Near linear time.
#pragma once

#include <algorithm>

#include "analyzer/policies/policy.h"

namespace nimble::analyzer {

class CostPolicy : public Policy {
 public:
  std::string_view name() const override { return "cost"; }

 private:
  std::uint32_t most_lanes(const Workload& work) const override { return std::max(work.max_lanes, 1u); }
  Assignment spread(const Dag& reduced, const Workload& work) const override;
};

}  // namespace nimble::analyzer
