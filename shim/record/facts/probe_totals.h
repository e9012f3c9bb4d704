// What a probe did, and what it cost. Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "nimble/internal/trace.h"

namespace nimble::shim {

// Among what was seen of a launch: what it has written looks like addresses of the program's memory.
inline constexpr TraceAccess kProbeSawAddresses{0, 0, true, true};
// Likewise: nothing that lay in what was compared, before the launch or when it was over, looks like such an address.
inline constexpr TraceAccess kProbeSawNone{0, 0, false, false};

struct ProbeTotals {
  std::uint64_t limit_bytes = 0;
  std::uint64_t launches = 0;   // that ran while it was at work
  std::uint64_t compared = 0;   // of these: all objects that they name, or some
  std::uint64_t bytes = 0;      // copied to the host
  std::uint64_t time_ns = 0;    // in which the program waited for it
  std::uint64_t too_large = 0;  // objects beyond the limit
  std::string why_ended;        // where it stepped aside
};

}  // namespace nimble::shim
