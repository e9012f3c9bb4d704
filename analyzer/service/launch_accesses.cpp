#include "analyzer/service/launch_accesses.h"

#include <map>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/memory/objects.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/service/in_process.h"
#include "analyzer/stages/find_accesses.h"

namespace nimble::shim {

namespace {

// As if the launch were an op of a step that touches all memory: its order with what others do there counts, too.
analyzer::StepObjects all_objects(const analyzer::ObjectTable& table) {
  analyzer::StepObjects all;
  for (std::uint32_t id = 0; id < table.objects().size(); ++id) {
    const analyzer::Object& object = table.objects()[id];
    all.index_of.emplace(id, static_cast<std::uint32_t>(all.objects.size()));
    all.objects.push_back({.id = id, .size = object.size, .memory = object.memory});
  }
  return all;
}

}  // namespace

LaunchAccesses launch_accesses(const TraceStore::Text& text, analyzer::KeptRules& rules, Evidence trust) try {
  const analyzer::TraceFile file = analyzer::read_trace(kTraceName, source_of(text));
  const Trace& trace = file.trace;
  LaunchAccesses said;
  if (trace.calls.empty() || trace.calls.back().kind != CallKind::launch) {
    said.why_not = "the launch cannot be recorded";
    return said;
  }
  const analyzer::ObjectTable table(trace);
  const analyzer::StepObjects objects = all_objects(table);
  const std::uint32_t launch = static_cast<std::uint32_t>(trace.calls.size() - 1);
  const analyzer::StepAccesses found =
      analyzer::accesses_of(trace, table, objects, {&launch, 1}, analysis_options(rules, trust));
  const analyzer::OpAccesses& op = found.ops.front();
  said.evidence = op.evidence;
  if (op.role == analyzer::OpRole::barrier) {
    said.why_not = found.reasons[op.why];
    return said;
  }
  std::map<std::uint64_t, LaunchAccesses::Memory> by_address;
  for (const analyzer::Access& access : found.of(0)) {
    const analyzer::Object& object = table.objects()[objects.objects[access.object].id];
    LaunchAccesses::Memory& memory = by_address[object.base];
    memory = {object.base, object.size, memory.writes || access.writes};
  }
  for (const auto& [address, memory] : by_address) said.memory.push_back(memory);
  return said;
} catch (const analyzer::InputError& error) {
  return {.memory = {}, .evidence = Evidence::assumed, .why_not = error.what()};
}

}  // namespace nimble::shim
