// NIMBLE_TUNE: finds the fastest way of submitting the step by trying them.
//
// A trial cycles through the ways a few times, a few steps each, so that drift of the machine affects all of them
// alike. The first step of each turn is not timed, since switching has its own cost. Then the way with the smallest
// median stays; a graph has to be at least as fast as the program's own order. Or, with `gain`, faster by that much,
// and in every single turn: noise, or an effect in only one state of the machine, must not decide. The result is
// watched: now and then a step is timed, and if steps have become slower the trial is repeated, a bounded number of
// times.
//
// Decides only; StepTuning takes the times, with StepClock, and StepRun submits. Times may come some steps late. In
// microseconds. Not synchronised: the replayer's lock guards it. Allocates nothing once built, but for text().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "nimble/internal/tune.h"

namespace nimble {

class Tuner {
 public:
  // Per trial: turns of each way, and per turn the untimed and the timed steps.
  static constexpr std::uint32_t kTurns = 3, kWarmUp = 1, kTimed = 3;
  static constexpr std::uint32_t kPatience = 8;         // steps that a trial waits for its last times, if none are late
  static constexpr std::uint32_t kLeastTimes = kTimed;  // fewer of a way decide nothing
  // Once decided: every kWatchEvery'th step is timed. The median of the last kWatched may grow by this factor.
  static constexpr std::uint32_t kWatchEvery = 32, kWatched = 7;
  static constexpr double kSlower = 1.25;
  static constexpr std::uint32_t kMostTrials = 8;   // `start`
  static constexpr std::uint32_t kTryAgain = 4096;  // `always`: steps between trials

  // `gain`: a fraction of the time of the program's own order.
  explicit Tuner(Tune when, double gain = 0) : when_(when), gain_(gain) {}
  // Sets it from the next decision on.
  void ask_for(double gain) { gain_ = gain; }
  // Begins with an earlier run's result: with this way, watching it. With `always` it still tries.
  Tuner(Tune when, Way settled, const std::array<double, kWays>& medians) : when_(when) {
    if (when != Tune::start) return;
    state_ = State::settled;
    settled_ = settled;
    medians_ = medians;
  }

  struct Step {
    Way way = Way::schedule;
    bool timed = false;
  };
  // How to submit the next step.
  Step next() const;
  // A step was completely submitted, as next() said. `late`: times of earlier steps are outstanding.
  void done(bool late);
  // The time of one.
  void add(Way way, double us);
  // This way is not to be had.
  void exclude(Way way);

  bool tries(Way way) const { return when_ != Tune::off && !excluded_[static_cast<std::size_t>(way)]; }
  // Whether the program's own order is the fastest, and that is final.
  bool ends_replay() const { return state_ == State::settled && settled_ == Way::own && when_ == Tune::start; }
  // Whether a trial is under way.
  bool is_within_trial() const { return when_ != Tune::off && state_ == State::trying && steps_ > 0; }
  // Rises with each decision.
  std::uint32_t decisions() const { return decisions_; }
  // The last decision: the way that stays, and the median of each way, negative if not timed.
  Way settled() const { return settled_; }
  const std::array<double, kWays>& medians() const { return medians_; }
  // Of the last trial: the median of each turn of a way, negative if not completely timed.
  std::array<double, kTurns> turns(Way way) const;
  // The same in words.
  std::string text() const;

 private:
  enum class State : std::uint8_t { trying, waiting, settled };
  struct Times {
    std::array<double, kTurns * kTimed> us{};
    std::uint32_t count = 0;
    void add(double value);
    double median() const;  // negative if there are too few
    double median_of(std::uint32_t turn) const;
  };

  std::uint32_t ways() const;
  Way way_at(std::uint32_t turn) const;
  bool all_known() const;  // whether there are enough times of each way
  bool gains(Way way) const;
  void decide();
  void try_again();

  Tune when_;
  double gain_ = 0;
  State state_ = State::trying;
  std::uint32_t steps_ = 0;  // since the state began
  std::uint32_t trials_ = 1, decisions_ = 0;
  std::array<bool, kWays> excluded_{};
  std::array<Times, kWays> times_;
  std::array<double, kWays> medians_{-1, -1, -1};
  std::array<double, kWatched> watched_{};
  std::uint32_t watches_ = 0;
  Way settled_ = Way::schedule;
};

}  // namespace nimble
