#include "replayer/reading.h"

#include "replayer/schedule/schedule_reader.h"

namespace nimble {

Reading read_for_replay(const ReplayOptions& options, CallContext& context) {
  Reading reading;
  reading.place = absolute_name(options.schedule_path);
  reading.file = what_is_at(reading.place);  // before it is read
  reading.schedule = options.schedule_text.empty() ? read_schedule(options.schedule_path)
                                                   : parse_schedule(options.schedule_text, options.schedule_path);
  reading.missing = reading.driver.load(context, audits(options, reading.schedule));
  context.driver_symbol("cuStreamGetCtx");  // looked up here: Onlookers may need it under the lock
  return reading;
}

bool audits(const ReplayOptions& options, const Schedule& schedule) {
  return options.audit ? *options.audit > 0 : schedule.rests_on_beliefs();
}

std::string beliefs_text(const Schedule& schedule) {
  if (!schedule.rests_on_beliefs()) return {};
  return "the order rests on beliefs: pairs of ops are unordered by declared evidence (" +
         std::to_string(schedule.freedom.declared) + ") and observed evidence (" +
         std::to_string(schedule.freedom.observed) + "). nimble-analyze --trust proven does without.";
}

std::string describe(const Schedule& schedule) {
  const std::size_t kinds = schedule.ends.size(), segments = schedule.segments.size();
  return (kinds > 1 ? std::to_string(kinds) + " kinds of step" : "a step") + " of " +
         std::to_string(schedule.ops.size()) + " ops in " + std::to_string(segments) +
         (segments == 1 ? " graph" : " graphs");
}

}  // namespace nimble
