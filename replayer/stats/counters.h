// What replay did, for the line at exit, for NIMBLE_STATS and for the C API. Not synchronised: the replayer's lock
// guards it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nimble/internal/counters.h"
#include "replayer/tune/tuner.h"

namespace nimble {

struct Counters : CounterValues {
  // Of one kind of step.
  struct Kind {
    std::uint64_t steps_replayed = 0, steps_passed_through = 0;
    std::string tuned;  // the way of submitting that was found the fastest (replayer/tune/tuner.h)
    std::array<double, kWays> tuned_us{-1, -1, -1};  // microseconds of a step by each; negative: not timed
  };

  std::map<std::string, std::uint64_t> reasons;  // of divergences
  std::map<std::string, std::uint64_t>
      audits_skipped;       // segments, and steps, that were not audited though they were due
  std::vector<Kind> kinds;  // in the schedule's order
  std::string stood_aside;  // why replay gave up for good; empty if it did not

  // One line for people.
  std::string line() const;
  // Writes the counters to this file, as a JSON object. If a file is there that Nimble has not written, they go to one
  // beside it (include/nimble/internal/files/own_file.h). Returns what the user should be told: why nothing was
  // written, or where they are instead; empty where all is well.
  std::string write(const std::string& path) const;
};

}  // namespace nimble
