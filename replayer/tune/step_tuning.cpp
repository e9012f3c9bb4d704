#include "replayer/tune/step_tuning.h"

#include "replayer/driver/current_context.h"

namespace nimble {

Way StepTuning::begin_step(std::uint32_t kind) {
  pass_step();  // the previous one, if the driver has not had its last op
  const Tuner::Step step = tuners_[kind].next();
  tried_ = !(step.timed && clock_.full());  // else the same again, until there is room for its time
  if (!step.timed) return step.way;
  const CurrentContext current(driver_, streams_.context());
  clock_.begin(step.way, streams_.launch().handle);
  return step.way;
}

Way StepTuning::take_for(std::uint32_t kind, Way way) {
  const Tuner::Step step = tuners_[kind].next();
  tried_ = tried_ && step.way == way && step.timed == clock_.running();
  if (!tried_) clock_.cancel();
  return step.way;
}

void StepTuning::end_step(std::uint32_t kind, bool passes) {
  if (tried_) tuners_[kind].done(clock_.late());
  clock_.of_kind(kind);
  tried_ = false;
  due_ = passes && clock_.running();
  if (!due_ && clock_.running()) end_clock();
}

void StepTuning::end_clock() {
  const CurrentContext current(driver_, streams_.context());
  standing_.keep_order(streams_.gather());
  clock_.end(streams_.launch().handle);
}

void StepTuning::read() {
  if (clock_.late()) {
    const CurrentContext current(driver_, streams_.context());
    clock_.read([this](std::uint32_t kind, Way way, double us) { tuners_[kind].add(way, us); });
  }
  if (std::all_of(tuners_.begin(), tuners_.end(), [](const Tuner& tuner) { return tuner.ends_replay(); }))
    standing_.stand_aside(tuners_.front().text());
}

}  // namespace nimble
