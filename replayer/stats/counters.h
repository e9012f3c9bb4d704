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
  // Counters of one kind of step.
  struct Kind {
    std::uint64_t steps_replayed = 0, steps_passed_through = 0;
    std::string tuned;                               // the fastest way of submitting (replayer/tune/tuner.h)
    std::array<double, kWays> tuned_us{-1, -1, -1};  // microseconds of a step by each; negative: not timed
  };

  std::map<std::string, std::uint64_t> reasons;  // of divergences
  std::map<std::string, std::uint64_t>
      audits_skipped;       // segments and steps that were due for an audit, but not audited
  std::vector<Kind> kinds;  // in the schedule's order
  std::string stood_aside;  // why replay gave up for good; empty if it did not
  std::string not_found;    // why no whole step has matched; empty if one has, or replay gave up

  // One line for the log (exit_line.cpp).
  std::string line() const;
  // Writes the counters to this file, as a JSON object. If there is a file that Nimble has not written, they go to one
  // beside it (include/nimble/internal/files/own_file.h). Returns a message for the user: why nothing was written, or
  // where they are instead; empty on success.
  std::string write(const std::string& path) const;
};

}  // namespace nimble
