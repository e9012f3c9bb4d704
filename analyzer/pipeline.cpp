#include "analyzer/pipeline.h"

#include <utility>

#include "analyzer/output/variants_together.h"

namespace nimble::analyzer {
namespace {

StepAnalysis analyze(StepReading reading, const AnalysisOptions& options) {
  StepAnalysis kind{std::move(reading), {}, {}, {}, {}};
  kind.order = find_order(kind, options);
  kind.times = predict_times(kind, kind.order);
  kind.cut = cut_step(kind, kind.order, kind.times, options);
  kind.plan = plan_step(kind, kind.order, kind.times, kind.cut, options);
  return kind;
}

StepAnalysis without_step(StepReading reading, const AnalysisOptions& options) {
  StepAnalysis none{std::move(reading), {}, {}, {}, {}};
  none.plan.chosen = options.policy;
  none.plan.status = kExitNoStep;
  none.plan.why_no_schedule = none.step.why_none;
  return none;
}

}  // namespace

Analysis analyze(TraceFile file, const AnalysisOptions& options) {
  std::vector<StepReading> readings = read_steps(std::move(file), options);
  if (readings.front().step.period == 0) return {without_step(std::move(readings.front()), options), {}, {}};
  std::vector<StepAnalysis> kinds;
  for (StepReading& reading : readings) kinds.push_back(analyze(std::move(reading), options));
  return fit_kinds_together(std::move(kinds), options);
}

}  // namespace nimble::analyzer
