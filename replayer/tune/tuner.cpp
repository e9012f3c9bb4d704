#include "replayer/tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>

namespace nimble {

namespace {

std::size_t index(Way way) { return static_cast<std::size_t>(way); }

template <std::size_t kMost>
double middle(std::array<double, kMost> values, std::size_t count) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(values.begin(), at, values.begin() + static_cast<std::ptrdiff_t>(count));
  return *at;
}

}  // namespace

void Tuner::Times::add(double value) {
  if (count < us.size()) us[count++] = value;
}

double Tuner::Times::median() const { return count < kLeastTimes ? -1 : middle(us, count); }

// If a step was not timed, later times move up, so that one turn's times may be those of two turns.
double Tuner::Times::median_of(std::uint32_t turn) const {
  if (count < (turn + 1) * kTimed) return -1;
  std::array<double, kTimed> of_it;
  std::copy_n(us.begin() + turn * kTimed, kTimed, of_it.begin());
  return middle(of_it, kTimed);
}

std::array<double, Tuner::kTurns> Tuner::turns(Way way) const {
  std::array<double, kTurns> medians;
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) medians[turn] = times_[index(way)].median_of(turn);
  return medians;
}

std::uint32_t Tuner::ways() const {
  return static_cast<std::uint32_t>(std::count(excluded_.begin(), excluded_.end(), false));
}

Way Tuner::way_at(std::uint32_t turn) const {
  turn %= ways();
  for (std::size_t way = 0;; ++way)
    if (!excluded_[way] && turn-- == 0) return static_cast<Way>(way);
}

Tuner::Step Tuner::next() const {
  if (when_ == Tune::off) return {};
  switch (state_) {
    case State::trying:
      return {way_at(steps_ / (kWarmUp + kTimed)), steps_ % (kWarmUp + kTimed) >= kWarmUp};
    case State::waiting:
      return {Way::schedule, false};
    default:
      return {settled_, settled_ != Way::own && steps_ % kWatchEvery == kWatchEvery - 1};
  }
}

void Tuner::done(bool late) {
  if (when_ == Tune::off || (state_ == State::waiting && late)) return;
  ++steps_;
  if (state_ == State::trying && steps_ == kTurns * ways() * (kWarmUp + kTimed)) {
    state_ = State::waiting;
    steps_ = 0;
  } else if (state_ == State::waiting && steps_ >= kPatience) {
    all_known() || trials_ >= kMostTrials ? decide() : try_again();
  } else if (state_ == State::settled && when_ == Tune::always && steps_ >= kTryAgain) {
    try_again();
  }
}

void Tuner::add(Way way, double us) {
  if (when_ == Tune::off || excluded_[index(way)]) return;
  if (state_ != State::settled) {
    times_[index(way)].add(us);
    bool all = state_ == State::waiting;
    for (std::size_t i = 0; i < kWays; ++i) all = all && (excluded_[i] || times_[i].count == kTurns * kTimed);
    if (all) decide();
    return;
  }
  if (way != settled_) return;  // of the trial, and too late
  watched_[watches_++ % kWatched] = us;
  const bool slower = watches_ >= kWatched && middle(watched_, kWatched) > kSlower * medians_[index(settled_)];
  if (slower && medians_[index(settled_)] > 0 && (when_ == Tune::always || trials_ < kMostTrials)) try_again();
}

void Tuner::exclude(Way way) {
  excluded_[index(way)] = true;
  if (state_ != State::settled || settled_ == way) try_again();
}

void Tuner::try_again() {
  state_ = State::trying;
  steps_ = 0;
  ++trials_;
  times_ = {};
}

bool Tuner::all_known() const {
  for (std::size_t way = 0; way < kWays; ++way)
    if (!excluded_[way] && times_[way].count < kLeastTimes) return false;
  return true;
}

// Compared with the program's own order, which was timed.
bool Tuner::gains(Way way) const {
  const double most = 1 - gain_;
  if (medians_[index(way)] < 0 || medians_[index(way)] > medians_[index(Way::own)] * most) return false;
  const std::array<double, kTurns> own = turns(Way::own), its = turns(way);
  for (std::uint32_t turn = 0; gain_ > 0 && turn < kTurns; ++turn)
    if (own[turn] >= 0 && its[turn] >= 0 && its[turn] > own[turn] * most) return false;
  return true;
}

void Tuner::decide() {
  // Times of only some ways decide nothing.
  const bool known = all_known();
  for (std::size_t way = 0; way < kWays; ++way) medians_[way] = known && !excluded_[way] ? times_[way].median() : -1;
  // If the program's own order was not timed there is nothing to compare with: the schedule stays.
  settled_ = Way::schedule;
  if (medians_[index(Way::own)] >= 0) {
    settled_ = Way::own;
    for (Way way : {Way::one_stream, Way::schedule})
      if (gains(way) && medians_[index(way)] <= medians_[index(settled_)]) settled_ = way;
  }
  state_ = State::settled;
  steps_ = watches_ = 0;
  ++decisions_;
}

std::string Tuner::text() const {
  constexpr const char* kNames[] = {"the program's own order", "one graph stream", "the schedule"};
  if (medians_[index(Way::own)] < 0) return "nothing could be timed: the schedule stays";
  std::string text =
      fmt::format("{} is the fastest: {:.1f} us a step", kNames[index(settled_)], medians_[index(settled_)]);
  const char* separator = "; ";
  for (std::size_t way = kWays; way-- > 0;) {
    if (way == index(settled_) || medians_[way] < 0) continue;
    text += fmt::format("{}{} {:.1f}", separator, kNames[way], medians_[way]);
    separator = ", ";
  }
  return text;
}

}  // namespace nimble
