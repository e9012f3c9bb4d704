// Whether the recorder saw all of the program's work: what an independent witness inside the driver counted, beside
// what was recorded. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nimble::shim {

struct Coverage {
  std::string why_not;         // why nothing was counted; empty if it was
  std::uint64_t seen = 0;      // launches, copies and sets that the driver was called for
  std::uint64_t recorded = 0;  // those among them that came through the shim
  std::vector<std::pair<std::string, std::uint64_t>> missed;  // by entry point: those that did not
};

}  // namespace nimble::shim
