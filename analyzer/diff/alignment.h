// Which items of one sequence are items of another, in the same order: as few as possible are left over.
//
// Myers, "An O(ND) Difference Algorithm and Its Variations", 1986, with a bound on the differences. Pure; any thread.
// No errors.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace nimble::analyzer {

struct Alignment {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> matched;  // indices into both, ascending
  // False if there are more than `most` differences: then only the common begin and end are matched.
  bool exact = true;
};

// Items are equal if their numbers are.
Alignment align(std::span<const std::uint64_t> first, std::span<const std::uint64_t> second, std::uint32_t most = 2000);

}  // namespace nimble::analyzer
