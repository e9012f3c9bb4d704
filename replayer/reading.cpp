#include "replayer/reading.h"

#include "replayer/schedule/schedule_reader.h"

namespace nimble {

Reading read_for_replay(const ReplayOptions& options, CallContext& context) {
  Reading reading;
  reading.place = absolute_name(options.schedule_path);
  reading.file = what_is_at(reading.place);  // before it is read
  reading.schedule = options.schedule_text.empty() ? read_schedule(options.schedule_path)
                                                   : parse_schedule(options.schedule_text, options.schedule_path);
  reading.missing = reading.driver.load(context, options.audit > 0);
  context.driver_symbol("cuStreamGetCtx");  // looked up here: Onlookers may need it under the lock
  return reading;
}

std::string describe(const Schedule& schedule) {
  const std::size_t kinds = schedule.ends.size(), segments = schedule.segments.size();
  return (kinds > 1 ? std::to_string(kinds) + " kinds of step" : "a step") + " of " +
         std::to_string(schedule.ops.size()) + " ops in " + std::to_string(segments) +
         (segments == 1 ? " graph" : " graphs");
}

}  // namespace nimble
