#include "shim/launcher/check_schedule.h"

#include <algorithm>
#include <cstdint>
#include <iostream>

#include "replayer/schedule/schedule_reader.h"

namespace nimble::launcher {

int check_schedule(const std::string& path) try {
  const Schedule schedule = read_schedule(path);
  std::size_t nodes = 0;
  std::uint32_t lanes = 0, synchronizations = 0;
  for (const ScheduleSegment& segment : schedule.segments) {
    nodes += segment.order.size();
    lanes = std::max(lanes, segment.lanes);
    synchronizations += segment.synchronizations;
  }
  std::cout << path << ": good. A step of " << schedule.ops.size() << " ops, " << nodes << " of them in "
            << schedule.segments.size() << (schedule.segments.size() == 1 ? " graph" : " graphs") << " on up to "
            << lanes << (lanes == 1 ? " stream" : " streams") << " with " << synchronizations
            << " synchronisations (policy " << schedule.policy << "); " << schedule.arena_bytes
            << " bytes of its own memory\n";
  return 0;
} catch (const ScheduleError& error) {
  std::cerr << "nimble: " << error.what() << "\n";
  return 2;
}

}  // namespace nimble::launcher
