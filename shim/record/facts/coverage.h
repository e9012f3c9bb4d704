// How complete a recording is: whether the recorder saw all of the program's work, checked against an independent count
// inside the driver, and where the device times come from. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nimble::shim {

// Where the times at which the GPU ran the ops come from.
enum class TimeSource : std::uint8_t { none, cupti, events, cupti_then_events };

struct Coverage {
  std::string why_not;                                        // why nothing was counted; empty if it was
  std::uint64_t seen = 0;                                     // launches, copies and sets that reached the driver
  std::uint64_t recorded = 0;                                 // those of them that came through the shim
  std::vector<std::pair<std::string, std::uint64_t>> missed;  // by entry point: those that did not
  TimeSource times = TimeSource::none;
  std::string why_times;  // why times are not taken as requested; empty if they are
};

}  // namespace nimble::shim
