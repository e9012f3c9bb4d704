#include "analyzer/service.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/check/checker.h"
#include "analyzer/check/range_ends.h"
#include "analyzer/graph/common_order.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "analyzer/report/describe.h"
#include "analyzer/step/step_variants.h"
#include "analyzer/step/thread_order.h"

namespace nimble::shim {

namespace {

constexpr const char* kName = "NIMBLE_MODE=auto";        // stands for the file in errors
constexpr std::uint32_t kMostOpsWithBranches = 1 << 14;  // three bits for each pair of them: 96 MiB

// As nimble-analyze does it by default. Throws InputError for rules that cannot be read.
analyzer::AnalysisOptions analysis_options(analyzer::KeptRules& rules) {
  analyzer::AnalysisOptions options;
  options.rules = *rules.get();
  return options;
}

// `text` is kept as long as somebody reads.
Trial::Source source_of(TraceStore::Text text) {
  return [text = std::move(text), chunk = std::size_t{0}, at = std::size_t{0}](char* buffer, std::size_t size) mutable {
    std::size_t got = 0;
    while (got < size && chunk < text.size()) {
      const std::size_t bytes = std::min(size - got, text[chunk]->size() - at);
      std::memcpy(buffer + got, text[chunk]->data() + at, bytes);
      got += bytes;
      at += bytes;
      if (at == text[chunk]->size()) ++chunk, at = 0;
    }
    return got;
  };
}

analyzer::TraceFile read(const TraceStore::Text& text) { return analyzer::read_trace(kName, source_of(text)); }

}  // namespace

struct Trial::Found {
  analyzer::TraceFile file;
  std::uint32_t ops = 0;
  std::size_t times = 0;
  std::size_t kinds = 0;
  bool marked = false;
  double explained = 0;
};

Trial::Trial(TraceStore::Text text, std::vector<std::string> rules)
    : Trial(source_of(std::move(text)), std::move(rules)) {}
Trial::Trial(Source text, std::vector<std::string> rules) : text_(std::move(text)), rules_(std::move(rules)) {}
Trial::~Trial() = default;

bool Trial::find_step() try {
  found_ = std::make_unique<Found>();
  found_->file = analyzer::read_trace(kName, text_);
  Trace& trace = found_->file.trace;
  analyzer::order_threads(trace);
  const analyzer::ObjectTable table(trace);
  const std::vector<analyzer::Step> kinds = analyzer::find_kinds(trace, table);
  const analyzer::Step& step = kinds.front();
  if (step.period == 0) {
    why_not_ = step.why_none;
    return false;
  }
  found_->ops = step.period;
  found_->times = step.begins.size();
  found_->marked = step.marked != 0;
  found_->kinds = kinds.size();
  std::uint64_t longest = 0, begin = step.ops.size(), end = 0;  // of the first step of any kind, and of the last
  std::uint64_t work = 0, explained = 0;
  for (const analyzer::Step& kind : kinds) {
    longest = std::max<std::uint64_t>(longest, kind.period);
    begin = std::min<std::uint64_t>(begin, kind.begins.front());
    end = std::max(end, kind.begins.back() + std::uint64_t{kind.period});
    for (const std::uint32_t call : kind.calls())
      explained += analyzer::does_work(trace.calls[call].kind) ? kind.begins.size() : 0;
  }
  for (std::uint64_t op = begin; op < step.ops.size(); ++op)
    work += analyzer::does_work(trace.calls[step.ops[op]].kind) ? 1 : 0;
  found_->explained = static_cast<double>(explained) / static_cast<double>(std::max<std::uint64_t>(work, 1));
  // What repeats while a program sets itself up is no step of it, and a step that it has left behind may not come
  // again.
  if (step.begins.size() < analyzer::kMinRepeats || step.ops.size() - end >= 2 * longest) {
    why_not_ = step_text() + ", and then other ops";
    return false;
  }
  return true;
} catch (const analyzer::InputError& error) {
  why_not_ = error.what();
  return false;
}

std::string Trial::schedule() try {
  analyzer::KeptRules rules(rules_);
  const analyzer::Analysis analysis = analyzer::analyze(std::move(found_->file), analysis_options(rules));
  if (analysis.status != analyzer::kExitOk) {
    why_not_ = analysis.why_no_schedule;
    return {};
  }
  if (analysis.segments.segments.empty()) {
    why_not_ = "no two ops of the step can be put into one graph";
    return {};
  }
  std::string text = analyzer::schedule_text(analyzer::build_schedule(analysis));
  if (analyzer::check_schedule(analysis, text, kName).unordered) {
    why_not_ = "a defect of the analyzer: its schedule leaves ops unordered that conflict";
    return {};
  }
  return text;
} catch (const analyzer::InputError& error) {
  why_not_ = error.what();
  return {};
}

double Trial::explained() const { return found_->marked ? 1 : found_->explained; }

std::uint64_t Trial::times() const { return found_->times; }

std::string Trial::step_text() const {
  return "a step of " + std::to_string(found_->ops) + " ops, " + std::to_string(found_->times) +
         (found_->marked ? " times as marked" : " times") +
         (found_->kinds > 1 ? ", and steps of " + std::to_string(found_->kinds - 1) + " other kinds" : "");
}

namespace {

// Makes allocations of the step that outlive it no ops of it. They stay where they are: other memory may have been at
// the same address before, which the program has given back. So it is the last one at an address that lasts.
void take_out(Trace& trace, const std::vector<std::uint64_t>& lasting) {
  std::unordered_set<std::uint64_t> left(lasting.begin(), lasting.end());
  for (auto call = trace.calls.rbegin(); call != trace.calls.rend() && call->kind != CallKind::step_begin; ++call) {
    if (call->kind != CallKind::alloc_async || call->result != 0 || left.erase(call->address) == 0) continue;
    call->kind = CallKind::alloc;
    call->memory = MemoryKind::stream_ordered;
    call->stream = kNone;
  }
}

// Makes the memory plan what it is already: each of the step's own objects stays where it is. What the plan was: by
// allocation, in their order.
std::vector<std::uint64_t> keep_memory_in_place(analyzer::Analysis& analysis) {
  std::map<std::uint32_t, std::uint32_t> by_alloc;  // objects
  for (std::uint32_t i = 0; i < analysis.objects.objects.size(); ++i)
    if (analysis.objects.objects[i].step_local) by_alloc[analysis.objects.objects[i].alloc] = i;
  std::vector<std::uint64_t> planned;
  std::uint64_t least = ~std::uint64_t{0};
  const auto base = [&](std::uint32_t i) { return analysis.table->objects()[analysis.objects.objects[i].id].base; };
  for (const auto& [alloc, object] : by_alloc) {
    planned.push_back(analysis.memory.offset[object]);
    least = std::min(least, base(object));
  }
  analysis.memory.arena_bytes = 0;
  for (const auto& [alloc, object] : by_alloc) {
    analysis.memory.offset[object] = base(object) - least;
    analysis.memory.arena_bytes =
        std::max(analysis.memory.arena_bytes, analysis.memory.offset[object] + analysis.objects.objects[object].size);
  }
  return planned;
}

// Why an op of the step cannot be part of the one graph that is to hold them all; empty where all can. Ops that could
// be, had they not been left alone by others, are told of only where there is no other.
std::string why_not_one_graph(const analyzer::Analysis& analysis) {
  std::uint32_t worst = kNone;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    if (analysis.segments.submit[op] != Submit::direct) continue;
    const char* const why = analysis.segments.why_direct[op];
    const bool alone = why && std::string_view(why).starts_with("alone");
    if (worst == kNone || !alone) worst = op;
    if (!alone) break;
  }
  if (worst == kNone) return {};
  const char* const why = analysis.segments.why_direct[worst];
  return "op " + std::to_string(worst) + " (" + analyzer::describe_op(analysis, worst, 100) +
         ") cannot be part of a graph" + (why ? std::string(": ") + why : std::string());
}

}  // namespace

std::string region_schedule(const TraceStore::Text& text, const std::vector<std::uint64_t>& lasting,
                            analyzer::KeptRules& rules, std::string& why_not) try {
  analyzer::TraceFile file = read(text);
  take_out(file.trace, lasting);
  analyzer::AnalysisOptions options = analysis_options(rules);
  options.start_early = false;  // it is submitted all at once
  const analyzer::Analysis analysis = analyzer::analyze(std::move(file), options);
  if (analysis.step.marked == 0) {
    why_not = "it holds no op";
    return {};
  }
  if (analysis.status != analyzer::kExitOk) {
    why_not = analysis.why_no_schedule;
    return {};
  }
  if (why_not = why_not_one_graph(analysis); !why_not.empty()) return {};
  if (why_not = doubtful_end(analysis, options.rules); !why_not.empty()) return {};
  std::string schedule = analyzer::schedule_text(analyzer::build_schedule(analysis));
  if (analyzer::check_schedule(analysis, schedule, kName).unordered) {
    why_not = "a defect of the analyzer: its schedule leaves ops unordered that conflict";
    return {};
  }
  return schedule;
} catch (const analyzer::InputError& error) {
  why_not = error.what();
  return {};
}

namespace {

// Leaves the schedule's order as far as the program has given it. Why there is nothing to gain, else empty.
std::string keep_to(const std::vector<analyzer::Dag::Edge>& given, ScheduleSegment& segment, std::uint32_t ops) {
  if (ops > kMostOpsWithBranches)
    return "it has branches of its own, and more than " + std::to_string(kMostOpsWithBranches) + " nodes";
  analyzer::CommonOrder common = analyzer::common_order(analyzer::Dag(ops, segment.edges), analyzer::Dag(ops, given));
  if (common.is_given) return "its nodes need all the order that the program's own branches leave them";
  segment.edges = std::move(common.edges);
  // How many streams that is: each op goes behind one that it waits for, where nobody is there yet.
  std::vector<bool> followed(ops);
  std::vector<bool> follows(ops);
  for (const auto& [from, to] : segment.edges)
    if (!followed[from] && !follows[to]) followed[from] = follows[to] = true;
  const auto along = static_cast<std::uint32_t>(std::count(follows.begin(), follows.end(), true));
  segment.lanes = static_cast<std::uint32_t>(segment.order.size()) - along;
  segment.synchronizations = static_cast<std::uint32_t>(segment.edges.size()) - along;
  return {};
}

std::optional<std::vector<GraphSchedule::Written>> written(const analyzer::Analysis& analysis) {
  std::map<std::uint64_t, GraphSchedule::Written> found;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    const analyzer::OpAccesses& known = analysis.accesses.ops[op];
    if (known.role == analyzer::OpRole::barrier || known.communicates != analyzer::Communicates::no)
      return std::nullopt;
    for (const analyzer::Access& access : analysis.accesses.of(op)) {
      const analyzer::StepObject& object = analysis.objects.objects[access.object];
      // What was only seen not to be written may be: with what was there already.
      const bool may_write = access.writes || access.evidence == analyzer::Evidence::observed;
      const std::uint64_t base = analysis.table->objects()[object.id].base;
      if (may_write && !object.step_local && !found.contains(base))
        found[base] = {{base, object.size}, analyzer::describe_op(analysis, op, 100)};
    }
  }
  std::vector<GraphSchedule::Written> result;
  for (auto& [address, each] : found) result.push_back(std::move(each));
  return result;
}

std::vector<std::string> unknown_ops(const analyzer::Analysis& analysis) {
  std::map<std::string, std::uint32_t> count;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    const analyzer::OpAccesses& known = analysis.accesses.ops[op];
    if (known.role != analyzer::OpRole::barrier) continue;
    std::string text = analyzer::describe_op(analysis, op, 160);
    if (known.why != kNone) text += ": " + analysis.accesses.reasons[known.why];
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
                             const GivenOrder& given, analyzer::KeptRules& rules) try {
  GraphSchedule result;
  const auto no = [&](std::string why) {
    result.why_not = std::move(why);
    return std::move(result);
  };
  analyzer::AnalysisOptions options = analysis_options(rules);
  options.start_early = false;  // it is submitted all at once
  options.one_kind = true;
  options.step = place;
  options.memory_in_place = true;
  analyzer::Analysis analysis = analyzer::analyze(trace.file(), options);
  if (analysis.status != analyzer::kExitOk) return no(analysis.why_no_schedule);
  result.writes = written(analysis);
  for (const analyzer::StepObject& object : analysis.objects.objects)
    result.memory.push_back({analysis.table->objects()[object.id].base, object.size});
  std::sort(result.memory.begin(), result.memory.end(),
            [](const TraceProbe::Range& a, const TraceProbe::Range& b) { return a.address < b.address; });
  result.unknown = unknown_ops(analysis);
  if (std::string why = why_not_one_graph(analysis); !why.empty()) return no(std::move(why));
  if (analysis.segments.segments.size() != 1) return no("its nodes make no single graph");
  if (!analysis.memory.possible) return no("it needs more memory than a plan can hold");
  for (const std::uint64_t at : keep_memory_in_place(analysis)) result.offsets.push_back(at);
  result.schedule = analyzer::build_schedule(analysis);
  for (std::uint32_t op = 0; op < result.schedule.ops.size(); ++op)
    if (result.schedule.ops[op].payload)
      return no("op " + std::to_string(op) + " (" + analyzer::describe_op(analysis, op, 100) +
                ") copies pointers that other ops follow");
  if (result.schedule.carries) return no("its order rests on pointers that are in memory before it begins");
  if (const auto wrong = analyzer::check_schedule(analysis, analyzer::schedule_text(result.schedule), kName).unordered)
    return no("a defect of the analyzer: its schedule leaves ops unordered that conflict: " + wrong->why);
  if (analysis.concurrency.nodes < 2) return no("each of its nodes needs the one before");
  ScheduleSegment& segment = result.schedule.segments.front();
  if (given)
    if (std::string why = keep_to(*given, segment, analysis.step.period); !why.empty()) return no(std::move(why));
  result.nowhere = std::move(analysis.led_nowhere);
  result.text = "on " + std::to_string(segment.lanes) + " streams with " + std::to_string(segment.synchronizations) +
                " edges between them";
  return result;
} catch (const analyzer::InputError& error) {
  GraphSchedule none;
  none.why_not = error.what();
  return none;
}

}  // namespace nimble::shim
