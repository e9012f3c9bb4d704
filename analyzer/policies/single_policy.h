// Everything on one lane, in program order: what the program does itself, without its launch costs.
#pragma once

#include "analyzer/policies/policy.h"

namespace nimble::analyzer {

class SinglePolicy : public Policy {
 public:
  std::string_view name() const override { return "single"; }

 private:
  std::uint32_t most_lanes(const Workload&) const override { return 1; }
  Assignment spread(const Dag& reduced, const Workload& work) const override;
};

}  // namespace nimble::analyzer
