#include "replayer/tuning_report.h"

#include "replayer/tune/tune_record.h"

namespace nimble {

void TuningReport::say(const std::vector<Tuner>& tuners, Counters& counters, const ReplayOptions& options) {
  said_.resize(tuners.size());
  for (std::size_t kind = 0; kind < tuners.size(); ++kind) {
    const Tuner& tuner = tuners[kind];
    if (tuner.decisions() == said_[kind]) continue;
    said_[kind] = tuner.decisions();
    counters.kinds[kind].tuned = name(tuner.settled());
    counters.kinds[kind].tuned_us = tuner.medians();
    const std::string which = tuners.size() == 1 ? "" : "steps of kind " + std::to_string(kind) + ": ";
    if (tuners.size() > 1 || !tuner.ends_replay()) options.log(ReplayLog::info, which + tuner.text());
  }
}

void TuningReport::save(const std::vector<Tuner>& tuners, const ReplayOptions& options) const {
  std::vector<ScheduleChoice> choices;
  std::uint32_t decisions = 0;
  for (const Tuner& tuner : tuners) {
    decisions += tuner.decisions();
    const bool known = tuner.medians()[static_cast<std::size_t>(tuner.settled())] >= 0;
    choices.push_back({known ? static_cast<std::uint32_t>(tuner.settled()) : kNone, tuner.medians()});
  }
  if (decisions == 0) return;
  const std::string problem = save_choices(place_, file_, choices);
  if (problem.empty()) {
    options.log(ReplayLog::info, options.schedule_path + ": saved the fastest way there, for later runs to begin with");
  } else {
    options.log(ReplayLog::warning, options.schedule_path + ": " + problem + ": the fastest way is not saved.");
  }
}

}  // namespace nimble
