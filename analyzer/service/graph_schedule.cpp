#include "analyzer/service/graph_schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "analyzer/access/kernel_params.h"
#include "analyzer/base/errors.h"
#include "analyzer/check/checker.h"
#include "analyzer/graph/common_order.h"
#include "analyzer/order/communication.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "analyzer/report/describe.h"
#include "analyzer/service/in_process.h"

namespace nimble::shim {

namespace {

constexpr std::uint32_t kMostOpsWithBranches = 1 << 14;  // three bits for each pair of them: 96 MiB

// The step's own objects, in the order in which they are allocated.
std::vector<std::uint32_t> own_objects(const analyzer::StepObjects& objects) {
  std::map<std::uint32_t, std::uint32_t> by_alloc;
  for (std::uint32_t i = 0; i < objects.objects.size(); ++i)
    if (objects.objects[i].step_local) by_alloc[objects.objects[i].alloc] = i;
  std::vector<std::uint32_t> result;
  for (const auto& [alloc, object] : by_alloc) result.push_back(object);
  return result;
}

// The memory plan that leaves each of the step's own objects where it is.
analyzer::MemoryPlan plan_in_place(const analyzer::StepAnalysis& analysis, std::span<const std::uint32_t> own) {
  const auto& objects = analysis.objects.objects;
  const auto base = [&](std::uint32_t i) { return analysis.input.table->objects()[objects[i].id].base; };
  std::uint64_t least = ~std::uint64_t{0};
  for (const std::uint32_t object : own) least = std::min(least, base(object));
  analyzer::MemoryPlan plan = analysis.plan.memory;
  plan.arena_bytes = 0;
  for (const std::uint32_t object : own) {
    plan.offset[object] = base(object) - least;
    plan.arena_bytes = std::max(plan.arena_bytes, plan.offset[object] + objects[object].size);
  }
  return plan;
}

// Restricts the schedule's order to what the program has given, too. Returns why there is nothing to gain, or nothing.
std::string keep_to(const std::vector<analyzer::Dag::Edge>& given, ScheduleSegment& segment, std::uint32_t ops) {
  if (ops > kMostOpsWithBranches)
    return "it has branches of its own, and more than " + std::to_string(kMostOpsWithBranches) + " nodes";
  analyzer::CommonOrder common = analyzer::common_order(analyzer::Dag(ops, segment.edges), analyzer::Dag(ops, given));
  if (common.is_given) return "its nodes need all the order that the program's own branches give them";
  segment.edges = std::move(common.edges);
  // How many streams that takes: each op follows one that it waits for, unless another op follows that already.
  std::vector<bool> followed(ops);
  std::vector<bool> follows(ops);
  for (const auto& [from, to] : segment.edges)
    if (!followed[from] && !follows[to]) followed[from] = follows[to] = true;
  const auto along = static_cast<std::uint32_t>(std::count(follows.begin(), follows.end(), true));
  segment.lanes = static_cast<std::uint32_t>(segment.order.size()) - along;
  segment.synchronizations = static_cast<std::uint32_t>(segment.edges.size()) - along;
  return {};
}

std::optional<std::vector<GraphSchedule::Written>> written(const analyzer::StepReading& analysis) {
  std::map<std::uint64_t, GraphSchedule::Written> found;
  const bool hides = !analyzer::hidden_memory(analysis.input.trace(), /*textures=*/false).empty();
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    const analyzer::OpAccesses& known = analysis.evidence.accesses.ops[op];
    if (known.role == analyzer::OpRole::barrier || known.communicates == analyzer::Communicates::by_rule)
      return std::nullopt;
    const auto accesses = analysis.evidence.accesses.of(op);
    const auto memory_of = [&](const analyzer::Access& access) {
      return analysis.objects.objects[access.object].memory;
    };
    const bool communicates = known.communicates == analyzer::Communicates::by_memory;
    const auto is_shared = [&](const analyzer::Access& access) {
      return analyzer::reached_by_others(memory_of(access));
    };
    // By any memory.
    if (communicates && (hides || std::ranges::none_of(accesses, is_shared))) return std::nullopt;
    const auto tells_by = [&](const analyzer::Access& access) { return access.writes && is_shared(access); };
    if (communicates && known.tells && std::ranges::none_of(accesses, tells_by)) return std::nullopt;
    for (const analyzer::Access& access : accesses) {
      const analyzer::StepObject& object = analysis.objects.objects[access.object];
      // What was only seen not to be written may be written with what was there already.
      const bool may_write = access.writes || access.evidence == Evidence::observed;
      const std::uint64_t base = analysis.input.table->objects()[object.id].base;
      if (!may_write || object.step_local) continue;
      const auto [entry, is_new] = found.try_emplace(base);
      if (is_new) entry->second = {{base, object.size}, analyzer::describe_op(analysis, op, 100)};
      entry->second.tells |= communicates && is_shared(access);
    }
  }
  std::vector<GraphSchedule::Written> result;
  for (auto& [address, each] : found) result.push_back(std::move(each));
  return result;
}

std::vector<std::string> unknown_ops(const analyzer::StepReading& analysis) {
  std::map<std::string, std::uint32_t> count;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    const analyzer::OpAccesses& known = analysis.evidence.accesses.ops[op];
    if (known.role != analyzer::OpRole::barrier) continue;
    std::string text = analyzer::describe_op(analysis, op, 160);
    if (known.why != kNone) text += ": " + analysis.evidence.accesses.reasons[known.why];
    ++count[text];
  }
  std::vector<std::pair<std::uint32_t, std::string>> most;
  for (const auto& [text, times] : count) most.emplace_back(times, text);
  std::ranges::stable_sort(most, std::greater(), [](const auto& each) { return each.first; });
  std::vector<std::string> result;
  for (const auto& [times, text] : most)
    result.push_back((times == 1 ? "a node" : std::to_string(times) + " nodes") + " ordered with everything: " + text);
  return result;
}

}  // namespace

GraphSchedule graph_schedule(const analyzer::GrowingTrace& trace, const analyzer::StepPlace& place,
                             const GivenOrder& given, analyzer::KeptRules& rules, Evidence trust,
                             std::shared_ptr<analyzer::KnownKernels> known) try {
  GraphSchedule result;
  const auto no = [&](std::string why) {
    result.why_not = std::move(why);
    return std::move(result);
  };
  analyzer::AnalysisOptions options = analysis_options(rules, trust);
  options.start_early = false;  // it is submitted all at once
  options.one_kind = true;
  options.step = place;
  options.memory_in_place = true;
  options.known = std::move(known);
  analyzer::Analysis analysis = analyzer::analyze(trace.file(), options);
  if (analysis.plan.status != analyzer::kExitOk) return no(analysis.plan.why_no_schedule);
  result.writes = written(analysis);
  for (const analyzer::StepObject& object : analysis.objects.objects)
    result.memory.push_back({analysis.input.table->objects()[object.id].base, object.size});
  std::sort(result.memory.begin(), result.memory.end(),
            [](const TraceProbe::Range& a, const TraceProbe::Range& b) { return a.address < b.address; });
  result.unknown = unknown_ops(analysis);
  if (std::string why = why_not_one_graph(analysis); !why.empty()) return no(std::move(why));
  if (analysis.cut.segments.segments.size() != 1) return no("its nodes do not make a single graph");
  if (!analysis.plan.memory.possible) return no("it needs more memory than a plan can hold");
  const std::vector<std::uint32_t> own = own_objects(analysis.objects);
  for (const std::uint32_t object : own) result.offsets.push_back(analysis.plan.memory.offset[object]);
  analysis.plan.memory = plan_in_place(analysis, own);
  result.schedule = analyzer::build_schedule(analysis);
  for (std::uint32_t op = 0; op < result.schedule.ops.size(); ++op)
    if (result.schedule.ops[op].payload)
      return no("op " + std::to_string(op) + " (" + analyzer::describe_op(analysis, op, 100) +
                ") copies pointers that other ops follow");
  if (result.schedule.carries) return no("its order relies on pointers that are in memory before it begins");
  if (const auto wrong =
          analyzer::check_schedule(analysis, analyzer::schedule_text(result.schedule), kTraceName).unordered)
    return no("a defect of the analyzer: its schedule leaves ops unordered that conflict: " + wrong->why);
  if (analysis.order.concurrency.nodes < 2) return no("each of its nodes needs the one before");
  ScheduleSegment& segment = result.schedule.segments.front();
  if (given)
    if (std::string why = keep_to(*given, segment, analysis.step.period); !why.empty()) return no(std::move(why));
  result.nowhere = std::move(analysis.evidence.non_pointer_words);
  result.text = "on " + std::to_string(segment.lanes) + " streams with " + std::to_string(segment.synchronizations) +
                " edges between them";
  result.beliefs = beliefs_for_log(analysis);
  return result;
} catch (const analyzer::InputError& error) {
  GraphSchedule none;
  none.why_not = error.what();
  return none;
}

}  // namespace nimble::shim
