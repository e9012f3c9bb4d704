// nimble-replay's results, and their presentation as a table and as JSON.
//
// Pure functions over plain data; any thread. Times of the simulated driver are always marked simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replayer/bundle/run/contents.h"
#include "replayer/bundle/run/runs.h"

namespace nimble::bundle {

// One way to run the step.
struct WayResult {
  std::string name;                      // "program order", a policy, or a schedule's file
  std::string key;                       // the same for machines
  std::vector<RunTime> times;            // of the timed runs
  std::uint32_t runs = 0;                // that were compared, including warm-up
  std::optional<Difference> difference;  // of the first run that was not as recorded
  std::string failure;                   // why it could not finish, or be judged; one line
  std::uint32_t streams = 0;             // at most, in parallel
  std::uint64_t graphs = 0;
  std::uint64_t arena_bytes = 0;  // of the memory plan
};

struct ReplayReport {
  std::string folder, program, recorded_on, device;
  bool simulated = false;
  std::uint64_t ops = 0, launches = 0, objects = 0, device_bytes = 0, host_bytes = 0;
  std::uint64_t first_seq = 0, last_seq = 0;
  bool moved = false;  // some memory is not at its recorded address
  std::vector<std::string> hidden;
  std::vector<WayResult> ways;  // program order first
  std::string why_no_schedule;  // if policies were requested, and there is none
};

// By nearest rank; the list must not be empty.
double percentile(std::vector<double> values, double share);

std::string text_of(const ReplayReport& report);
std::string json_of(const ReplayReport& report);
// One line: how a way's memory at the end differs.
std::string text_of(const WayResult& way);

}  // namespace nimble::bundle
