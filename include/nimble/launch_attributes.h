// What the attributes of a launch say of what its kernel touches. By number, CUlaunchAttributeID's, which is what a
// trace holds. No state.
#pragma once

#include <cstdint>

namespace nimble {

// Those that change how a kernel runs, and nothing of what it touches: caching, waiting, clusters, urgency, fences,
// shared memory. Others record events, have the blocks wait for each other, or are not known.
constexpr bool only_changes_how_it_runs(std::uint32_t attribute) {
  switch (attribute) {
    case 1:   // ACCESS_POLICY_WINDOW
    case 3:   // SYNCHRONIZATION_POLICY
    case 4:   // CLUSTER_DIMENSION
    case 5:   // CLUSTER_SCHEDULING_POLICY_PREFERENCE
    case 8:   // PRIORITY
    case 9:   // MEM_SYNC_DOMAIN_MAP
    case 10:  // MEM_SYNC_DOMAIN
    case 11:  // PREFERRED_CLUSTER_DIMENSION
    case 14:  // PREFERRED_SHARED_MEMORY_CARVEOUT
      return true;
    default:
      return false;
  }
}

}  // namespace nimble
