// NIMBLE_TUNE: which way of submitting the step is the fastest, by trying them.
//
// A trial goes round the ways a few times, a few steps each, so that a machine that drifts is unkind to all of them.
// The first step of each turn is not timed, since switching costs something of its own. Then the way with the smallest
// median stays; a graph has to be at least as fast as the program's own order. Or by `gain` faster, and then in every
// turn by itself: what is noise, or true in one state of the machine alone, decides nothing. What stays is watched:
// every now and then a step is timed, and where they have become slower the trial is held again, a bounded number of
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

// How a step is submitted.
enum class Way : std::uint8_t {
  own,         // as the program issues it, call by call
  one_stream,  // its segments as graphs in the program's order
  schedule,    // its segments as graphs in the schedule's order
};
inline constexpr std::size_t kWays = 3;
inline constexpr std::string_view kWayNames[] = {"own", "one_stream", "schedule"};
inline std::string name(Way way) { return std::string(kWayNames[static_cast<std::size_t>(way)]); }

class Tuner {
 public:
  // Of one trial: turns of each way, and of each turn the steps that are not timed and those that are.
  static constexpr std::uint32_t kTurns = 3, kWarmUp = 1, kTimed = 3;
  static constexpr std::uint32_t kPatience = 8;  // steps that a trial waits for its last times, where none are late
  static constexpr std::uint32_t kLeastTimes = kTimed;  // fewer of a way decide nothing
  // Once decided: every kWatchEvery'th step is timed. The median of the last kWatched may be so many times what it was.
  static constexpr std::uint32_t kWatchEvery = 32, kWatched = 7;
  static constexpr double kSlower = 1.25;
  static constexpr std::uint32_t kMostTrials = 8;   // `start`
  static constexpr std::uint32_t kTryAgain = 4096;  // `always`: steps between trials

  // `gain`: a share of what the program's own order takes.
  explicit Tuner(Tune when, double gain = 0) : when_(when), gain_(gain) {}
  // From the next decision on.
  void ask_for(double gain) { gain_ = gain; }
  // Begins where an earlier run has come to: with this way, and watching it. With `always` it tries all the same.
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
  // The next step's.
  Step next() const;
  // A step was submitted to its end, as next() had said. `late`: times of earlier steps are still to come.
  void done(bool late);
  // How long one took.
  void add(Way way, double us);
  // This way is not to be had.
  void exclude(Way way);

  bool tries(Way way) const { return when_ != Tune::off && !excluded_[static_cast<std::size_t>(way)]; }
  // The program's own order is the fastest, and that is final.
  bool ends_replay() const { return state_ == State::settled && settled_ == Way::own && when_ == Tune::start; }
  // Some steps of a trial are over, and some are to come.
  bool is_within_trial() const { return when_ != Tune::off && state_ == State::trying && steps_ > 0; }
  // Rises with each decision.
  std::uint32_t decisions() const { return decisions_; }
  // The last one: what stays, and the median of each way, negative where it was not timed.
  Way settled() const { return settled_; }
  const std::array<double, kWays>& medians() const { return medians_; }
  // Of the last trial: the median of each turn of a way, negative where it was not timed to its end.
  std::array<double, kTurns> turns(Way way) const;
  // The same in words.
  std::string text() const;

 private:
  enum class State : std::uint8_t { trying, waiting, settled };
  struct Times {
    std::array<double, kTurns * kTimed> us{};
    std::uint32_t count = 0;
    void add(double value);
    double median() const;  // negative where there are too few
    double median_of(std::uint32_t turn) const;
  };

  std::uint32_t ways() const;
  Way way_at(std::uint32_t turn) const;
  bool all_known() const;  // enough times of each way
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
