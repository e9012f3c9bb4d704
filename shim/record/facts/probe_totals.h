// What a probe did, and what it cost. Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "nimble/internal/trace.h"

namespace nimble::shim {

// Marks a launch that has written what looks like addresses of the program's memory.
inline constexpr TraceAccess kProbeSawAddresses{0, 0, true, true};
// Marks one for which nothing in the compared memory, before or after the launch, looks like such an address.
inline constexpr TraceAccess kProbeSawNone{0, 0, false, false};

struct ProbeTotals {
  std::uint64_t limit_bytes = 0;
  std::uint64_t launches = 0;   // while it was active
  std::uint64_t compared = 0;   // of these: with all or some of the objects that they name
  std::uint64_t bytes = 0;      // copied to the host
  std::uint64_t time_ns = 0;    // that the program waited for it
  std::uint64_t too_large = 0;  // objects beyond the limit
  std::string why_ended;        // if it stepped aside
};

}  // namespace nimble::shim
