// All that a random program is checked for: the analyzer's accesses, the schedule, and the replay.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/check/compare.h"
#include "tests/oracle/program/program.h"
#include "tests/oracle/run/child.h"

namespace nimble::oracle {

// What is broken on purpose, to see that the checks can fail.
enum class Break {
  nothing,
  dependency,  // one edge of the schedule is left out
  access,      // a rule says of kernels whose code proves nothing that they only read
};

struct CheckOptions {
  std::uint32_t orders = 3;  // adversarial orders of the replay
  Break what = Break::nothing;
};

struct CheckOutcome {
  // Empty: all is well. One line each, with the check that failed before a colon: `accesses`, `checker` (the schedule
  // does not order what is taken to conflict), `truth` (nor what really does), `race`, `digest`, `program` (the program
  // itself is not what it should be), `run`, `analyzer`.
  std::vector<std::string> failures;
  std::string log;  // of the run that failed

  std::uint32_t ops = 0, streams = 0, step_ops = 0;
  bool step = false, schedule = false, broken = false;  // broken: there was something to break
  std::string why_no_schedule;
  std::uint32_t replays = 0;
  std::uint64_t steps_replayed = 0, graph_launches = 0, divergences = 0;
  std::string stood_aside;
  Comparison accesses;
};

// `folder` is for its files, which stay there.
CheckOutcome check_program(std::uint64_t seed, const Limits& limits, const CheckOptions& options, PlainRuns& plain,
                           const std::string& folder);

}  // namespace nimble::oracle
