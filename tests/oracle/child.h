// Runs of one random program, each in a process of its own.
//
// Processes are forked from this one, which libnimble.so and the simulated driver are loaded into and which never uses
// them: a run costs a fork instead of a start. The runs without the shim come from a second process, into which it is
// not loaded. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/exact.h"
#include "tests/oracle/program.h"

namespace nimble::oracle {

// Starts this program anew with libnimble.so loaded, where it is not; returns where it is. `preload_first` (may be
// null) comes before it.
void preload_nimble(char** argv, const char* preload_first);

struct Run {
  std::string failure;  // empty: it ran to its end
  std::uint64_t digest = 0, races = 0, illegal = 0;
  std::vector<ExactOp> accesses;  // where they were asked for
  std::string log;                // what it said on stderr
};

// Runs it under these settings, which are environment variables. With `accesses`, what it touched comes back.
Run run_in_child(const Program& program, const std::vector<std::pair<std::string, std::string>>& settings,
                 bool accesses, const std::string& folder);

// Runs programs without the shim.
class PlainRuns {
 public:
  PlainRuns();
  ~PlainRuns();
  PlainRuns(const PlainRuns&) = delete;
  PlainRuns& operator=(const PlainRuns&) = delete;
  // 16 digits, or "failed".
  std::string digest(std::uint64_t seed, const Limits& limits);

 private:
  std::FILE *ask_ = nullptr, *answer_ = nullptr;
  int process_ = 0;
};

}  // namespace nimble::oracle
