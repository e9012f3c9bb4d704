// The ways of submitting a step, and when to time them against each other (NIMBLE_TUNE in
// nimble/internal/options.def).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nimble {

enum class Tune : std::uint8_t { off, start, always };

// How a step is submitted.
enum class Way : std::uint8_t {
  own,         // as the program issues it, call by call
  one_stream,  // its segments as graphs in the program's order
  schedule,    // its segments as graphs in the schedule's order
};
inline constexpr std::size_t kWays = 3;
inline constexpr std::string_view kWayNames[] = {"own", "one_stream", "schedule"};
inline std::string name(Way way) { return std::string(kWayNames[static_cast<std::size_t>(way)]); }

}  // namespace nimble
