// The checks of a random program in disorder: under replay it computes the same, and gets the same answers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/oracle/disorder/disorder.h"
#include "tests/oracle/run/child.h"

namespace nimble::oracle {

// What is broken on purpose, to see that the checks can fail.
enum class BreakDisorder : std::uint8_t {
  nothing,
  dependency,  // one edge of the schedule is left out
  change,      // the program that is replayed has one change less
  error,       // the program that is replayed has no call that fails
  hang,        // the replayed program does not end
};

struct DisorderOptions {
  std::uint32_t runs = 2;    // under replay, each in an order and with settings of its own
  unsigned patience_s = 20;  // for each run
  BreakDisorder what = BreakDisorder::nothing;
};

struct DisorderOutcome {
  // Empty: all is well. One line each, with the check that failed before a colon: `hung`, `digest`, `errors` (what the
  // calls answered), `race`, `aside` (replay gave up without a reason), `run`, `program` (the program itself is not
  // what it should be).
  std::vector<std::string> failures;
  std::string log;  // of the run that failed

  bool schedule = false, broken = false;                         // broken: there was something to break
  std::uint32_t attempts = 0, streams = 0, kinds = 0, runs = 0;  // kinds: that the schedule has
  std::string threads, fault;
  std::map<std::string, std::uint64_t> changes;  // that were made, by kind
  // Of all runs under replay:
  std::uint64_t steps = 0, disturbed = 0, steps_replayed = 0, ops_replayed = 0, graph_launches = 0, node_updates = 0;
  std::uint64_t steps_of_other_kinds = 0;  // replayed, of those beside the first
  std::uint64_t flushes = 0, watchdog_flushes = 0, steps_audited = 0, faults_met = 0;
  std::map<std::string, std::uint64_t> divergences, stood_aside;  // by reason
};

// `folder` is for its files, which stay there.
DisorderOutcome check_disorder(std::uint64_t seed, const Cuts& cuts, const DisorderOptions& options, PlainRuns& plain,
                               const std::string& folder);

// The words that describe the program of this seed, as far as it was checked.
std::string describe_disorder(std::uint64_t seed, std::uint32_t attempts, const Cuts& cuts);

}  // namespace nimble::oracle
