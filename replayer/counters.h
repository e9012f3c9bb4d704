// What replay did, for the line at exit and for NIMBLE_STATS. Not synchronised: the replayer's lock guards it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "replayer/tuner.h"

namespace nimble {

struct Counters {
  // Of one kind of step.
  struct Kind {
    std::uint64_t steps_replayed = 0, steps_passed_through = 0;
    std::string tuned;  // the way of submitting that was found the fastest (replayer/tuner.h)
    std::array<double, kWays> tuned_us{-1, -1, -1};  // microseconds of a step by each; negative: not timed
  };

  std::uint64_t steps_replayed = 0;        // every segment went as one graph
  std::uint64_t steps_passed_through = 0;  // matched, but (partly) submitted call by call: while binding, after a flush
  std::uint64_t ops_replayed = 0;          // submitted inside graphs
  std::uint64_t ops_passed_through = 0;    // submitted call by call
  std::uint64_t allocations_served = 0;    // answered from the memory plan
  std::uint64_t graph_launches = 0;
  std::uint64_t node_updates = 0;                    // nodes patched before a launch
  std::uint64_t flushes = 0;                         // held ops submitted early, since a call could have observed them
  std::uint64_t watchdog_flushes = 0;                // the same, since no call came
  std::map<std::string, std::uint64_t> divergences;  // by reason
  std::uint64_t steps_audited = 0, audits_failed = 0;
  std::map<std::string, std::uint64_t>
      audits_skipped;       // segments, and steps, that were not audited though they were due
  std::vector<Kind> kinds;  // in the schedule's order
  std::string stood_aside;  // why replay gave up for good; empty if it did not

  // One line for people.
  std::string line() const;
  // Writes a JSON object to the file. False if it cannot be written.
  bool write(const std::string& path) const;
};

}  // namespace nimble
