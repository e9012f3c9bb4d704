#include "analyzer/stages/read_steps.h"

#include <memory>
#include <utility>

#include "analyzer/step/step_variants.h"
#include "analyzer/step/thread_order.h"

namespace nimble::analyzer {
namespace {

std::vector<Step> find_steps(const Recording& input, const AnalysisOptions& options) {
  if (!options.step && !options.one_kind) return find_kinds(input.trace(), *input.table);
  std::vector<Step> only;
  only.push_back(options.step ? step_at(input.trace(), *input.table, *options.step)
                              : find_step(input.trace(), *input.table));
  return only;
}

}  // namespace

Recording recording_of(TraceFile file) {
  order_threads(file.trace);
  Recording input;
  input.file = std::make_shared<const TraceFile>(std::move(file));
  input.table = std::make_shared<const ObjectTable>(input.trace());
  return input;
}

std::vector<StepReading> read_steps(TraceFile file, const AnalysisOptions& options) {
  const Recording input = recording_of(std::move(file));
  std::vector<Step> steps = find_steps(input, options);
  std::vector<StepReading> kinds(steps.size());
  std::vector<const Step*> all;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    kinds[i].input = input;
    kinds[i].step = std::move(steps[i]);
    kinds[i].evidence.trust = options.trust;
    all.push_back(&kinds[i].step);
  }
  if (kinds.front().step.period == 0) return kinds;
  for (StepReading& kind : kinds) {
    kind.objects = objects_of_step(input.trace(), *input.table, kind.step.calls());
    kind.evidence = find_accesses(input, all, kind.step, kind.objects, options);
  }
  return kinds;
}

}  // namespace nimble::analyzer
