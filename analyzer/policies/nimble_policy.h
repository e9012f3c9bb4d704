// Algorithm 1 of Nimble (Kwon, Yu, Jeong, Chun, NeurIPS 2020).
//
// A bipartite graph has every node once as a source and once as a target, and the edges of the minimum equivalent graph
// between them. The edges of a maximum matching link the nodes into chains; each chain is a lane. No two nodes that
// could run side by side share a lane, and no assignment with that property needs fewer synchronisations: one for each
// edge that is not matched.
#pragma once

#include "analyzer/policies/policy.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class NimblePolicy : public Policy {
 public:
  std::string_view name() const override { return "nimble"; }

 private:
  std::uint32_t most_lanes(const Workload&) const override { return kNone; }
  Assignment spread(const Dag& reduced, const Workload& work) const override;
};

}  // namespace nimble::analyzer
