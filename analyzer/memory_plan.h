// Gives every step-local object an address range of its own.
//
// No two objects of a step share memory, so that no dependency comes from reuse; the price is that the plan may need
// more than the program did at its peak. Bytes; offsets are multiples of kPlanAlignment, in the order of allocation.
// Pure; any thread. No errors: a plan beyond kMaxArenaBytes is marked as impossible.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/step_objects.h"

namespace nimble::analyzer {

inline constexpr std::uint64_t kPlanAlignment = 256;
inline constexpr std::uint64_t kMaxArenaBytes = std::uint64_t{1} << 46;

struct MemoryPlan {
  std::vector<std::uint64_t> offset;  // per object of the step; 0 for those that are not step-local
  std::uint64_t arena_bytes = 0;
  std::uint64_t program_peak_bytes = 0;  // the most that step-local objects held at one time in the program
  bool possible = true;
};

MemoryPlan plan_memory(const StepObjects& objects, std::uint32_t ops);

}  // namespace nimble::analyzer
