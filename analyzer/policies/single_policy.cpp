#include "analyzer/policies/single_policy.h"

namespace nimble::analyzer {

Assignment SinglePolicy::spread(const Dag& reduced, const Workload&) const {
  return {std::vector<std::uint32_t>(reduced.nodes(), 0), reduced.nodes() > 0 ? 1u : 0u};
}

}  // namespace nimble::analyzer
