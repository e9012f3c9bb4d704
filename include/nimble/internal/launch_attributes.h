// Which launch attributes change how a kernel runs, and nothing of what it touches or when. By their numbers in
// CUlaunchAttributeID, which traces hold.
#pragma once

#include <cstdint>

namespace nimble {

inline constexpr std::uint32_t kAccessPolicyWindow = 1;
inline constexpr std::uint32_t kSynchronizationPolicy = 3;
inline constexpr std::uint32_t kClusterDimension = 4;
inline constexpr std::uint32_t kClusterSchedulingPolicyPreference = 5;
inline constexpr std::uint32_t kLaunchPriority = 8;
inline constexpr std::uint32_t kMemSyncDomainMap = 9;
inline constexpr std::uint32_t kMemSyncDomain = 10;
inline constexpr std::uint32_t kPreferredClusterDimension = 11;
inline constexpr std::uint32_t kPreferredSharedMemoryCarveout = 14;

// Caching, how the host waits, clusters, urgency, fences, shared memory. Others record events, make the blocks wait for
// each other, let the kernel begin early, or are unknown.
constexpr bool only_changes_how_it_runs(std::uint32_t attribute) {
  switch (attribute) {
    case kAccessPolicyWindow:
    case kSynchronizationPolicy:
    case kClusterDimension:
    case kClusterSchedulingPolicyPreference:
    case kLaunchPriority:
    case kMemSyncDomainMap:
    case kMemSyncDomain:
    case kPreferredClusterDimension:
    case kPreferredSharedMemoryCarveout:
      return true;
    default:
      return false;
  }
}

}  // namespace nimble
