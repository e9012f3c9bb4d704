#include "analyzer/model/host_time.h"

#include <algorithm>

namespace nimble::analyzer {
namespace {

// How much of the time between two ops of the step the program itself took. `first` and `second` are calls of the
// trace.
double between(const Trace& trace, std::uint32_t first, std::uint32_t second) {
  const TraceCall& from = trace.calls[first];
  double us = trace.calls[second].host_begin_us - from.host_begin_us - from.host_duration_us;
  for (std::uint32_t call = first + 1; call < second; ++call)
    if (const TraceCall& other = trace.calls[call]; other.thread == from.thread && observes(other) && !other.query)
      us -= other.host_duration_us;
  constexpr double kMost = 1e9;  // a trace may say anything
  return us > 0 ? std::min(us, kMost) : 0;
}

}  // namespace

HostTime host_time(const Trace& trace, const Step& step) {
  HostTime result;
  result.before_us.assign(step.period, 0);
  std::vector<std::uint32_t> usable;
  for (std::uint32_t occurrence = 0; occurrence < step.begins.size(); ++occurrence) {
    auto calls = step.calls_of(occurrence);
    if (std::none_of(calls.begin(), calls.end(), [&](std::uint32_t call) { return trace.calls[call].probe != kNone; }))
      usable.push_back(occurrence);
  }
  result.repeats = static_cast<std::uint32_t>(usable.size());
  if (usable.empty()) return result;
  std::vector<double> times(usable.size());
  for (std::uint32_t op = 1; op < step.period; ++op) {
    for (std::size_t i = 0; i < usable.size(); ++i) {
      auto calls = step.calls_of(usable[i]);
      times[i] = between(trace, calls[op - 1], calls[op]);
    }
    auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    result.before_us[op] = *middle;
  }
  return result;
}

std::vector<std::uint32_t> pauses(const HostTime& host) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t op = 0; op < host.before_us.size(); ++op)
    if (host.before_us[op] >= kPauseUs) result.push_back(op);
  return result;
}

}  // namespace nimble::analyzer
