// Any bytes as a schedule give a Schedule with safe indices, or a ScheduleError.
#include <cstdlib>
#include <string>

#include "replayer/schedule/schedule_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const nimble::Schedule schedule =
        nimble::parse_schedule(std::string(reinterpret_cast<const char*>(data), size), "input");
    // What was accepted must be safe to walk.
    for (const nimble::ScheduleOp& op : schedule.ops) {
      for (const nimble::ScheduleParam& param : op.pointers) {
        if (param.pointer.offset >= schedule.objects.at(param.pointer.object).size) std::abort();
      }
    }
    for (const nimble::ScheduleSegment& segment : schedule.segments) {
      for (const auto& [from, to] : segment.edges) {
        if (from >= to || schedule.ops.at(to).submit != nimble::Submit::graph) std::abort();
      }
    }
  } catch (const nimble::ScheduleError&) {
  }
  return 0;
}
