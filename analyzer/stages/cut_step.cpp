#include "analyzer/stages/cut_step.h"

#include <optional>
#include <utility>

#include "analyzer/plan/host_clocks.h"
#include "analyzer/plan/segment_splitting.h"
#include "analyzer/stages/lane_planner.h"

namespace nimble::analyzer {
namespace {

StepSegments cut_before(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                        const std::vector<std::uint32_t>& ops) {
  StepSegments result;
  result.segments = cut_into_segments(reading.input.trace(), reading.step, reading.evidence.accesses, ops);
  result.streams = streams_of_step({reading.input.trace(), *reading.input.table, reading.step, reading.objects,
                                    reading.evidence.accesses, result.segments, *order.program});
  result.program_us = predict_program(DeviceModel(), result.segments, times.costs, times.host);
  return result;
}

// More cuts, if the chosen policy is predicted to gain by the GPU starting early.
void cut_early(const StepReading& reading, const StepOrder& order, const StepTimes& times,
               const AnalysisOptions& options, StepSegments& result) {
  if (times.host.repeats == 0) return;
  Segmentation early = split_segments(DeviceModel(), result.segments, graphs_of(result.segments, order.dependencies),
                                      times.costs, times.host);
  const std::size_t cuts = early.segments.size() - result.segments.segments.size();
  if (cuts == 0) return;
  const auto step_us = [&](const Segmentation& segments) {
    return LanePlanner(reading, order, times, segments).plan(options.policy, options.max_lanes).outcome.step_us;
  };
  const double uncut_us = step_us(result.segments);
  if (step_us(early) >= uncut_us) return;
  result.segments = std::move(early);
  result.early_cuts = static_cast<std::uint32_t>(cuts);
  result.uncut_us = uncut_us;
}

}  // namespace

StepSegments cut_step(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                      const AnalysisOptions& options) {
  std::vector<std::uint32_t> at;
  if (options.start_early) at = pauses(times.host);
  StepSegments result = cut_before(reading, order, times, at);
  result.pauses = std::move(at);
  if (options.start_early) cut_early(reading, order, times, options, result);
  return result;
}

StepSegments cut_step_at(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                         const StepSegments& before, const std::vector<std::uint32_t>& cuts) {
  StepSegments result = cut_before(reading, order, times, cuts);
  result.pauses = before.pauses;
  result.early_cuts = before.early_cuts;
  result.uncut_us = before.uncut_us;
  return result;
}

}  // namespace nimble::analyzer
