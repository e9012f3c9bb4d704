// Runs of random programs, each in a process of its own.
//
// Processes are forked from this one, which libnimble.so and the simulated driver are loaded into and which never uses
// them: a run costs a fork instead of a start. The runs without the shim come from a second process, into which it is
// not loaded. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace nimble::oracle {

// Starts this program anew with libnimble.so loaded, where it is not; returns where it is. `preload_first` (may be
// null) comes before it.
void preload_nimble(char** argv, const char* preload_first);

using Settings = std::vector<std::pair<std::string, std::string>>;  // environment variables

struct Run {
  std::string failure;  // empty: it ran to its end
  bool hung = false;    // it was ended because it did not
  std::string answer;
  std::string log;  // what it said on stderr
};

constexpr unsigned kPatienceSeconds = 120;

// What `program` answers, under these settings.
Run run_in_child(const std::function<std::string()>& program, const Settings& settings, const std::string& folder,
                 unsigned patience_s = kPatienceSeconds);

// Runs programs without the shim.
class PlainRuns {
 public:
  PlainRuns();
  ~PlainRuns();
  PlainRuns(const PlainRuns&) = delete;
  PlainRuns& operator=(const PlainRuns&) = delete;
  // The line that random_steps answers to this one.
  std::string ask(const std::string& line);

 private:
  std::FILE *ask_ = nullptr, *answer_ = nullptr;
  int process_ = 0;
};

}  // namespace nimble::oracle
