// In topological order, each node continues the lane of its first predecessor that no other node has continued, or
// opens a lane of its own. Linear time; the rule of Opara.
#pragma once

#include "analyzer/policies/policy.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class GreedyPolicy : public Policy {
 public:
  std::string_view name() const override { return "greedy"; }

 private:
  std::uint32_t most_lanes(const Workload&) const override { return kNone; }
  Assignment spread(const Dag& reduced, const Workload& work) const override;
};

}  // namespace nimble::analyzer
