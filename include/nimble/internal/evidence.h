// How we know an access, from the strongest to the weakest. A dependency is as well known as the weaker of its two
// accesses.
#pragma once

#include <cstdint>
#include <string_view>

namespace nimble {

enum class Evidence : std::uint8_t {
  exact,     // memory operation: the API says what it touches
  proven,    // from the kernel's code
  declared,  // from the kernel's signature, or a rule
  observed,  // seen while recording
  assumed,   // nothing known: reads and writes everything
};

inline constexpr int kEvidences = 5;

inline constexpr std::string_view name(Evidence evidence) {
  constexpr std::string_view names[kEvidences] = {"exact", "proven", "declared", "observed", "assumed"};
  return names[static_cast<int>(evidence)];
}

inline constexpr Evidence weaker(Evidence a, Evidence b) { return a > b ? a : b; }

// Whether it may be wrong: it is neither the API's semantics nor the code.
inline constexpr bool is_belief(Evidence evidence) {
  return evidence == Evidence::declared || evidence == Evidence::observed;
}

}  // namespace nimble
