#include "analyzer/model/measured.h"

#include <algorithm>
#include <utility>

namespace nimble::analyzer {
namespace {

// For at least one value.
double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

MeasuredStep measure(const Trace& trace, const Step& step) {
  MeasuredStep measured;
  measured.op_us.assign(step.period, -1);
  for (std::uint32_t op = 0; op < step.period; ++op) {
    std::vector<double> durations;
    for (std::uint32_t occurrence = 0; occurrence < step.begins.size(); ++occurrence) {
      const TraceCall& call = trace.calls[step.calls_of(occurrence)[op]];
      if (call.device_duration_us >= 0) durations.push_back(call.device_duration_us);
    }
    if (durations.empty()) continue;
    measured.op_us[op] = median(std::move(durations));
    ++measured.ops;
  }
  if (measured.ops == 0) return measured;
  std::vector<double> busy, span;
  for (std::uint32_t occurrence = 0; occurrence < step.begins.size(); ++occurrence) {
    std::vector<std::pair<double, double>> intervals;
    for (std::uint32_t index : step.calls_of(occurrence)) {
      const TraceCall& call = trace.calls[index];
      if (call.device_duration_us >= 0)
        intervals.emplace_back(call.device_begin_us, call.device_begin_us + call.device_duration_us);
    }
    if (intervals.size() != measured.ops) continue;
    std::sort(intervals.begin(), intervals.end());
    double covered = 0, end = intervals.front().first;
    for (const auto& [from, to] : intervals) {
      covered += std::max(0.0, to - std::max(from, end));
      end = std::max(end, to);
    }
    busy.push_back(covered);
    span.push_back(end - intervals.front().first);
  }
  measured.repeats = static_cast<std::uint32_t>(busy.size());
  if (busy.empty()) return measured;
  measured.busy_us = median(std::move(busy));
  measured.span_us = median(std::move(span));
  return measured;
}

}  // namespace nimble::analyzer
