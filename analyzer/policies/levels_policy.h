// Level by level, round robin over a fixed number of lanes, as Taskflow does for CUDA graphs that it captures.
//
// A node's level is the length of the longest path that leads to it. Within a lane the nodes keep program order.
#pragma once

#include "analyzer/policies/policy.h"

namespace nimble::analyzer {

class LevelsPolicy : public Policy {
 public:
  explicit LevelsPolicy(std::uint32_t lanes = 4) : lanes_(lanes) {}
  std::string_view name() const override { return "levels"; }

 private:
  std::uint32_t most_lanes(const Workload&) const override { return lanes_; }
  Assignment spread(const Dag& reduced, const Workload& work) const override;

  std::uint32_t lanes_;
};

}  // namespace nimble::analyzer
