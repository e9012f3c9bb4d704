// Which way of submitting each kind of step is the fastest: asks a Tuner how the next step is to go, and times it where
// that wants to know.
//
// Owns a tuner for each kind of step, and the clock. Not synchronised: the replayer's lock guards it. Errors: replay
// stands aside where an order of streams cannot be kept.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/tune/step_clock.h"
#include "replayer/tune/tuner.h"

namespace nimble {

class StepTuning {
 public:
  // Does not tune until start(). All must outlive it.
  StepTuning(const DriverApi& driver, StepStreams& streams, StandAside& standing, std::uint32_t kinds)
      : driver_(driver), streams_(streams), standing_(standing), tuners_(kinds, Tuner(Tune::off)), clock_(driver) {}

  // Tries from now on which way is the fastest, and takes that. `goes_on`: whether some other kind goes on from this
  // one.
  template <typename GoesOn>
  void start(Tune when, const Schedule& schedule, GoesOn goes_on) {
    if (!driver_.cuEventElapsedTime_) when = Tune::off;
    for (std::uint32_t kind = 0; kind < tuners_.size(); ++kind) {
      const ScheduleChoice known = kind < schedule.tuned.size() ? schedule.tuned[kind] : ScheduleChoice{};
      // Where another kind goes on from it, no one can tell when the step is over.
      tuners_[kind] = goes_on(kind)        ? Tuner(Tune::off)
                      : known.way == kNone ? Tuner(when)
                                           : Tuner(when, static_cast<Way>(known.way), known.us);
    }
  }
  // By kind of step.
  const std::vector<Tuner>& tuners() const { return tuners_; }
  bool tries(std::uint32_t kind, Way way) const { return tuners_[kind].tries(way); }
  // This way is not to be had.
  void exclude(Way way) {
    for (Tuner& tuner : tuners_) tuner.exclude(way);
  }

  // The step was bound in this context: what was timed in another one is lost.
  void use_context(CUcontext context) {
    if (context_ != context) clock_.abandon();
    context_ = context;
  }
  // The context is gone.
  void abandon() { clock_.abandon(); }

  // A step begins that does not go as a tuner says.
  void pass_step() {
    cancel();
    due_ = false;
  }
  // One of this kind begins: the way in which it is to go.
  Way begin_step(std::uint32_t kind);
  // It turns out to be of this kind. `way`: in which it goes. The way in which it should.
  Way take_for(std::uint32_t kind, Way way);
  // The step does not go as it should have.
  void cancel() {
    tried_ = false;
    clock_.cancel();
  }
  // It has ended. `passes`: the driver has yet to have its last op; landed() follows when it has.
  void end_step(std::uint32_t kind, bool passes);
  void landed() {
    if (!due_) return;
    due_ = false;
    end_clock();
  }

  // Takes in the times that are there by now. Where replay is no gain it stands aside.
  void read();

 private:
  void end_clock();

  const DriverApi& driver_;
  StepStreams& streams_;
  StandAside& standing_;
  std::vector<Tuner> tuners_;  // by kind
  StepClock clock_;
  CUcontext context_ = nullptr;  // that its events are of
  bool tried_ = false;           // the step at hand is as its tuner wants it
  bool due_ = false;             // its last op has passed, the driver has not had it yet, and the step is timed
};

}  // namespace nimble
