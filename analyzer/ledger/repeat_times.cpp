#include "analyzer/ledger/repeat_times.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace nimble::analyzer {
namespace {

// The call whose op begins first on the GPU.
std::uint32_t first_of(const Trace& trace, std::span<const std::uint32_t> calls) {
  std::uint32_t first = kNone;
  for (const std::uint32_t call : calls)
    if (is_timed(trace.calls[call]) &&
        (first == kNone || trace.calls[call].device_begin_us < trace.calls[first].device_begin_us))
      first = call;
  return first;
}

// By which clocks of host and GPU that were brought together may still differ.
constexpr double kClockError = 5;

struct Candidate {
  std::uint32_t occurrence = 0, timed = 0, next_call = kNone;
  std::uint32_t too_early = 0;  // ops that began before they were submitted
  double from_us = 0, until_us = 0;
  double length() const { return until_us - from_us; }
};

Candidate candidate(const Trace& trace, const Step& step, std::uint32_t occurrence) {
  Candidate result{.occurrence = occurrence, .from_us = std::numeric_limits<double>::infinity()};
  for (const std::uint32_t index : step.calls_of(occurrence)) {
    const TraceCall& call = trace.calls[index];
    if (call.probe != kNone) return {};
    if (!is_timed(call)) continue;
    ++result.timed;
    if (call.device_begin_us + kClockError < call.host_begin_us) ++result.too_early;
    result.from_us = std::min(result.from_us, call.device_begin_us);
    result.until_us = std::max(result.until_us, call.device_begin_us + call.device_duration_us);
  }
  const std::uint32_t after = occurrence + 1;
  if (after < step.begins.size() && step.begins[occurrence] + step.period == step.begins[after]) {
    const std::uint32_t next = first_of(trace, step.calls_of(after));
    // On one clock, and after this repeat has begun.
    if (next != kNone && trace.calls[next].device_begin_us > result.from_us) {
      result.next_call = next;
      result.until_us = trace.calls[next].device_begin_us;
    }
  }
  return result;
}

}  // namespace

bool is_timed(const TraceCall& call) {
  constexpr double kMost = 1e15;  // a trace may say anything
  return call.device_begin_us >= 0 && call.device_duration_us >= 0 &&
         call.device_begin_us + call.device_duration_us < kMost;
}

RepeatTimes median_repeat(const Trace& trace, const Step& step) {
  RepeatTimes times;
  std::vector<Candidate> candidates;
  for (std::uint32_t occurrence = 0; occurrence < step.begins.size(); ++occurrence)
    candidates.push_back(candidate(trace, step, occurrence));
  std::uint32_t most = 0;
  for (const Candidate& each : candidates) most = std::max(most, each.timed);
  if (most == 0) return times;
  std::erase_if(candidates, [&](const Candidate& each) { return each.timed != most; });
  std::uint64_t too_early = 0;
  for (const Candidate& each : candidates) too_early += each.too_early;
  times.one_clock =
      trace.device.find("Simulated") == std::string::npos && too_early * 20 <= std::uint64_t{most} * candidates.size();
  const auto is_followed = [](const Candidate& each) { return each.next_call != kNone; };
  if (std::ranges::any_of(candidates, is_followed)) std::erase_if(candidates, std::not_fn(is_followed));

  const auto middle = candidates.begin() + static_cast<std::ptrdiff_t>(candidates.size() / 2);
  std::ranges::nth_element(candidates, middle, {}, &Candidate::length);
  times.occurrence = middle->occurrence;
  times.repeats = static_cast<std::uint32_t>(candidates.size());
  times.from_us = middle->from_us;
  times.until_us = middle->until_us;
  times.next_call = middle->next_call;
  for (const std::uint32_t index : step.calls_of(times.occurrence)) {
    const TraceCall& call = trace.calls[index];
    const bool timed = is_timed(call);
    times.begin_us.push_back(timed ? call.device_begin_us : -1);
    times.end_us.push_back(timed ? call.device_begin_us + call.device_duration_us : -1);
    if (!timed && does_work(call.kind)) ++times.untimed;
  }
  return times;
}

}  // namespace nimble::analyzer
