// Looks at what the ops cost: at most so many lanes, the critical path on a lane of its own and first in line for the
// multiprocessors, ops that are bound by the memory's bandwidth one after the other.
//
// It lays the ops on lanes by list scheduling, in a few ways, takes what the other policies do besides, brought down to
// the same number of lanes, and keeps what is predicted to end first: with equal ends, what synchronises least. So
// where another policy keeps to that number of lanes, this one is predicted to be no worse. Near linear time.
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
