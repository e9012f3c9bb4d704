// Finds the fastest way of submitting each kind of step: asks a Tuner how to submit the next step, and times it on
// request.
//
// Owns a tuner for each kind of step, and the clock. Not synchronised: the replayer's lock guards it. If streams cannot
// be kept in order replay stands aside.
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

  // From now on times the ways, and uses the fastest. `goes_on`: whether some other kind continues this one.
  template <typename GoesOn>
  void start(Tune when, const Schedule& schedule, GoesOn goes_on) {
    if (!driver_.cuEventElapsedTime_) when = Tune::off;
    for (std::uint32_t kind = 0; kind < tuners_.size(); ++kind) {
      const ScheduleChoice known = kind < schedule.tuned.size() ? schedule.tuned[kind] : ScheduleChoice{};
      // If another kind continues it, the end of the step is unknown.
      tuners_[kind] = goes_on(kind)        ? Tuner(Tune::off)
                      : known.way == kNone ? Tuner(when)
                                           : Tuner(when, static_cast<Way>(known.way), known.us);
    }
  }
  // By kind of step.
  const std::vector<Tuner>& tuners() const { return tuners_; }
  bool tries(std::uint32_t kind, Way way) const { return tuners_[kind].tries(way); }
  // This way is not available.
  void exclude(Way way) {
    for (Tuner& tuner : tuners_) tuner.exclude(way);
  }

  // The step was bound in this context: times of another one are lost.
  void use_context(CUcontext context) {
    if (context_ != context) clock_.abandon();
    context_ = context;
  }
  // The context is gone.
  void abandon() { clock_.abandon(); }

  // A step begins that is not submitted as a tuner says.
  void pass_step() {
    cancel();
    due_ = false;
  }
  // One of this kind begins: returns how to submit it.
  Way begin_step(std::uint32_t kind);
  // It turns out to be of this kind. `way`: how it is being submitted. Returns how it should be.
  Way take_for(std::uint32_t kind, Way way);
  // The step is not submitted as it should have been.
  void cancel() {
    tried_ = false;
    clock_.cancel();
  }
  // It has ended. `passes`: the driver has yet to get its last op; landed() follows when it has.
  void end_step(std::uint32_t kind, bool passes);
  void landed() {
    if (!due_) return;
    due_ = false;
    end_clock();
  }

  // Reads available times. If replay gains nothing it stands aside.
  void read();

 private:
  void end_clock();

  const DriverApi& driver_;
  StepStreams& streams_;
  StandAside& standing_;
  std::vector<Tuner> tuners_;  // by kind
  StepClock clock_;
  CUcontext context_ = nullptr;  // the context of its events
  bool tried_ = false;           // the current step is submitted as its tuner wants
  bool due_ = false;             // its last op has passed, the driver has not had it yet, and the step is timed
};

}  // namespace nimble
