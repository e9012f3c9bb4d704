#include "analyzer/stages/find_order.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "analyzer/graph/transitive_reduction.h"

namespace nimble::analyzer {
namespace {

std::vector<Dag::Edge> pairs_of(const Dependencies& dependencies) {
  std::vector<Dag::Edge> edges;
  edges.reserve(dependencies.all.size());
  for (const Dependency& dependency : dependencies.all) edges.push_back({dependency.from, dependency.to});
  return edges;
}

}  // namespace

StepOrder find_order(const StepReading& reading, const AnalysisOptions& options) {
  const Trace& trace = reading.input.trace();
  const auto calls = reading.step.calls();
  std::vector<std::uint32_t> event, event2;
  std::vector<std::uint8_t> work;
  for (const std::uint32_t call : calls) {
    event.push_back(trace.calls[call].event);
    event2.push_back(trace.calls[call].event2);
    work.push_back(does_work(trace.calls[call].kind));
  }
  std::vector<std::uint64_t> place;
  if (options.memory_in_place)
    for (const StepObject& object : reading.objects.objects)
      place.push_back(reading.input.table->objects()[object.id].base);
  StepOrder result;
  result.program = std::make_unique<const HappensBefore>(trace, calls);
  result.dependencies = find_dependencies({reading.evidence.accesses, *result.program, reading.objects,
                                           std::move(event), std::move(event2), std::move(place)});
  result.reduced = transitive_reduction(Dag(static_cast<std::uint32_t>(calls.size()), pairs_of(result.dependencies)));
  result.concurrency = max_concurrency(result.reduced, work);
  return result;
}

}  // namespace nimble::analyzer
