#include "analyzer/pipeline.h"

#include <memory>
#include <utility>

#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/output/variants_together.h"
#include "analyzer/stages/find_accesses.h"
#include "analyzer/stages/plan_step.h"
#include "analyzer/step/step_variants.h"
#include "analyzer/step/thread_order.h"

namespace nimble::analyzer {

Analysis read_step(TraceFile file, const AnalysisOptions& options) {
  Analysis analysis;
  order_threads(file.trace);
  analysis.file = std::make_shared<const TraceFile>(std::move(file));
  analysis.chosen = options.policy;
  analysis.trust = options.trust;
  const Trace& trace = analysis.file->trace;
  analysis.table = std::make_shared<const ObjectTable>(trace);
  std::vector<Step> kinds;
  if (options.step) {
    kinds.push_back(step_at(trace, *analysis.table, *options.step));
  } else if (options.one_kind) {
    kinds.push_back(find_step(trace, *analysis.table));
  } else {
    kinds = find_kinds(trace, *analysis.table);
  }
  analysis.step = std::move(kinds.front());
  if (analysis.step.period == 0) {
    analysis.status = kExitNoStep;
    analysis.why_no_schedule = analysis.step.why_none;
    return analysis;
  }
  std::vector<const Step*> all{&analysis.step};
  for (std::size_t i = 1; i < kinds.size(); ++i) all.push_back(&kinds[i]);
  find_accesses(analysis, all, options);
  analysis.others.reserve(kinds.size());
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    Analysis& other = analysis.others.emplace_back();
    other.file = analysis.file;
    other.table = analysis.table;
    other.chosen = options.policy;
    other.trust = options.trust;
    other.step = std::move(kinds[i]);
    all[i] = &other.step;
    find_accesses(other, all, options);
  }
  return analysis;
}

namespace {

std::vector<Dag::Edge> pairs_of(const Dependencies& dependencies) {
  std::vector<Dag::Edge> edges;
  edges.reserve(dependencies.all.size());
  for (const Dependency& dependency : dependencies.all) edges.push_back({dependency.from, dependency.to});
  return edges;
}

// What the ops depend on, and what the host and the device take for them.
void find_order(Analysis& analysis, const AnalysisOptions& options) {
  const Trace& trace = analysis.file->trace;
  const auto calls = analysis.step.calls();
  analysis.order = std::make_unique<HappensBefore>(trace, calls);
  std::vector<std::uint32_t> event, event2;
  for (std::uint32_t call : calls) {
    event.push_back(trace.calls[call].event);
    event2.push_back(trace.calls[call].event2);
  }
  std::vector<std::uint64_t> place;
  for (const StepObject& object : analysis.objects.objects)
    if (options.memory_in_place) place.push_back(analysis.table->objects()[object.id].base);
  analysis.dependencies = find_dependencies(
      {analysis.accesses, *analysis.order, analysis.objects, std::move(event), std::move(event2), std::move(place)});
  analysis.reduced =
      transitive_reduction(Dag(static_cast<std::uint32_t>(calls.size()), pairs_of(analysis.dependencies)));
  const DeviceModel device;
  analysis.measured = measure(trace, analysis.step);
  analysis.host = host_time(trace, analysis.step);
  analysis.costs = predict_costs(device, trace, *analysis.table, calls, analysis.objects, analysis.accesses,
                                 analysis.measured.op_us);
  std::vector<double> duration;
  std::vector<std::uint8_t> work;
  for (std::size_t op = 0; op < calls.size(); ++op) {
    duration.push_back(analysis.costs[op].device_us);
    work.push_back(does_work(trace.calls[calls[op]].kind));
  }
  analysis.critical = critical_path(analysis.reduced, duration);
  analysis.concurrency = max_concurrency(analysis.reduced, work);
}

}  // namespace

Analysis analyze(TraceFile file, const AnalysisOptions& options) {
  Analysis analysis = read_step(std::move(file), options);
  if (analysis.step.period == 0) return analysis;
  find_order(analysis, options);
  plan_step(analysis, options, {});
  for (Analysis& other : analysis.others) {
    find_order(other, options);
    plan_step(other, options, {});
  }
  fit_kinds_together(analysis, options);
  return analysis;
}

}  // namespace nimble::analyzer
