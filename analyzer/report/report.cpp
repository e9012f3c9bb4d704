#include "analyzer/report/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <numeric>

#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

class Text {
 public:
  __attribute__((format(printf, 3, 4))) void line(const char* label, const char* format, ...) {
    char head[32];
    std::snprintf(head, sizeof head, "%-16s", label);
    std::va_list arguments;
    va_start(arguments, format);
    char body[2048];
    std::vsnprintf(body, sizeof body, format, arguments);
    va_end(arguments);
    out_ += head;
    out_ += body;
    out_ += '\n';
  }
  void blank() { out_ += '\n'; }
  void raw(const std::string& text) { out_ += text + '\n'; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

using Count = unsigned long long;

// "launch 12, copy 3"; empty where nothing counts.
template <typename Names, typename Counts>
std::string listed(const Names& names, const Counts& counts, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i)
    if (counts[i] > 0) text += (text.empty() ? "" : ", ") + std::string(names(i)) + " " + std::to_string(counts[i]);
  return text;
}

void probe_lines(Text& out, const Trace& trace) {
  if (!trace.probing) return;
  const TraceProbing& probing = *trace.probing;
  out.line("probe", "%llu of %llu launches compared, %s copied in %s", Count{probing.compared}, Count{probing.launches},
           bytes_text(probing.bytes).c_str(), us_text(probing.ms * 1000).c_str());
  if (probing.too_large > 0)
    out.line("", "%s above %s left out (NIMBLE_PROBE_LIMIT)", plural(probing.too_large, "object").c_str(),
             bytes_text(probing.limit_bytes).c_str());
  if (!probing.why_ended.empty()) out.line("", "it ended early: %s", shortened(probing.why_ended, 200).c_str());
}

void trace_lines(Text& out, const Analysis& analysis) {
  const Trace& trace = analysis.file->trace;
  out.line("trace", "%s (%s, %s)", shortened(analysis.file->path, 120).c_str(),
           plural(trace.calls.size(), "call").c_str(), (plural(analysis.step.ops.size(), "op") + " ran").c_str());
  if (!trace.program.empty()) out.line("program", "%s", shortened(trace.program, 100).c_str());
  if (!trace.device.empty()) out.line("device", "%s", shortened(trace.device, 100).c_str());
  if (!trace.complete) out.line("", "the file was cut off: the program ended without closing it");
  if (!trace.why_stopped.empty())
    out.line("recording", "ended before the program: %s", shortened(trace.why_stopped, 120).c_str());
  const TraceCoverage& coverage = trace.coverage;
  if (!coverage.why_not.empty()) {
    out.line("coverage", "not measured: %s", shortened(coverage.why_not, 120).c_str());
  } else {
    out.line("coverage", "%llu of %llu launches, copies and sets, as CUPTI counted them", Count{coverage.recorded},
             Count{coverage.seen});
    for (const auto& [symbol, times] : coverage.missed)
      out.line("", "missed: %s, %s", shortened(symbol, 60).c_str(), plural(times, "time").c_str());
  }
  probe_lines(out, trace);
  if (trace.dropped > 0) out.line("", "the recorder dropped %llu events", Count{trace.dropped});
}

std::size_t ops_in_graphs(const Analysis& analysis) {
  std::size_t ops = 0;
  for (const Segment& segment : analysis.segments.segments) ops += segment.ops.size();
  return ops;
}

void step_lines(Text& out, const Analysis& analysis) {
  const Step& step = analysis.step;
  out.line("step", "%s, %zu times (%.1f %% of all ops)", plural(step.period, "op").c_str(), step.begins.size(),
           100.0 * static_cast<double>(step.period) * static_cast<double>(step.begins.size()) /
               static_cast<double>(step.ops.size()));
  if (step.marked)
    out.line("", "marked by the program%s; %s of the %u that it marked are like this one",
             step.name.empty() ? "" : (" as " + step.name).c_str(), std::to_string(step.begins.size()).c_str(),
             step.marked);
  out.line("", "prologue %llu ops, extras between steps %llu, epilogue %llu", Count{step.prologue()},
           Count{step.extras()}, Count{step.epilogue()});
  if (step.patterns > 1)
    out.line("", "%u of %zu repeats use their objects in the same roles; the schedule serves these (double buffering?)",
             step.same_pattern, step.begins.size());
  for (const Analysis& other : analysis.others)
    out.line("another kind", "%s, %s (%.1f %% of all ops), %s of them in %s", plural(other.step.period, "op").c_str(),
             plural(other.step.begins.size(), "time").c_str(),
             100.0 * static_cast<double>(other.step.period) * static_cast<double>(other.step.begins.size()) /
                 static_cast<double>(step.ops.size()),
             std::to_string(ops_in_graphs(other)).c_str(), plural(other.segments.segments.size(), "graph").c_str());
  for (const std::string& why : analysis.kinds_left_out) out.line("left out", "%s", shortened(why, 200).c_str());
  out.line("shown", "repeat %u of %zu, which begins at seq %llu", step.representative + 1, step.begins.size(),
           Count{analysis.file->trace.calls[step.calls().front()].seq});
}

void dependency_lines(Text& out, const Analysis& analysis, const Counts& counts) {
  std::string believed = analysis.trust == kDefaultTrust ? "" : ", --trust " + std::string(name(analysis.trust));
  out.line(
      "accesses", "%s (ops%s)",
      listed([](std::size_t i) { return name(static_cast<Evidence>(i)); }, counts.ops_by_evidence, kEvidences).c_str(),
      believed.c_str());
  out.line("dependencies", "%zu, of which %zu are needed to imply the others", analysis.dependencies.all.size(),
           analysis.reduced.edges().size());
  if (!analysis.dependencies.all.empty()) {
    out.line("  by kind", "%s",
             listed([](std::size_t i) { return name(static_cast<DependencyKind>(i)); }, counts.dependencies_by_kind,
                    kDependencyKinds)
                 .c_str());
    out.line("  by evidence", "%s",
             listed([](std::size_t i) { return name(static_cast<Evidence>(i)); }, counts.dependencies_by_evidence,
                    kEvidences)
                 .c_str());
  }
  out.line("critical path", "%s, %s predicted", plural(analysis.critical.nodes, "op").c_str(),
           us_text(analysis.critical.us).c_str());
  out.line("concurrency", "%s%u ops side by side, by dependencies alone",
           analysis.concurrency.exact ? "at most " : "at least ", analysis.concurrency.nodes);
}

double chosen_step_us(const Analysis& analysis) {
  for (const PolicyOutcome& outcome : analysis.policies)
    if (outcome.policy == analysis.chosen) return outcome.step_us;
  return 0;
}

void segment_lines(Text& out, const Analysis& analysis, const Counts& counts) {
  std::size_t largest = 0;
  for (const Segment& segment : analysis.segments.segments) largest = std::max(largest, segment.ops.size());
  auto submitted = [&](Submit submit) { return Count{counts.ops_by_submit[static_cast<int>(submit)]}; };
  out.line("segments", "%zu (largest: %zu ops); ops in graphs %llu, planned %llu, direct %llu",
           analysis.segments.segments.size(), largest, submitted(Submit::graph) + submitted(Submit::order),
           submitted(Submit::plan), submitted(Submit::direct));
  for (const auto& [why, times] : counts.direct) out.line("  direct", "%6llu  %s", Count{times}, why.c_str());
  if (!analysis.pauses.empty())
    out.line("  cut at pauses", "in %s, before which the program's host does something else for %s or more",
             plural(analysis.pauses.size(), "place").c_str(), us_text(kPauseUs).c_str());
  if (analysis.early_cuts > 0)
    out.line("  cut early", "in %s, so that the GPU begins while the host is issuing: predicted %s instead of %s",
             plural(analysis.early_cuts, "place").c_str(), us_text(chosen_step_us(analysis)).c_str(),
             us_text(analysis.uncut_us).c_str());
  if (analysis.host.repeats > 0)
    out.line("host time", "%s of the program's own between the ops of a step (medians of %s)",
             us_text(std::accumulate(analysis.host.before_us.begin(), analysis.host.before_us.end(), 0.0)).c_str(),
             plural(analysis.host.repeats, "repeat").c_str());
  out.line("host waits", "%llu places where the host waits for or looks at the GPU", Count{counts.host_waits});
  if (analysis.memory.arena_bytes > 0)
    out.line("memory plan", "%s, against %s at the program's peak; %s if no two objects shared a byte",
             bytes_text(analysis.memory.arena_bytes).c_str(), bytes_text(analysis.memory.program_peak_bytes).c_str(),
             bytes_text(analysis.memory.unpacked_bytes).c_str());
  if (analysis.memory_without_limit > 0) {
    std::uint32_t lanes = 0;
    for (const SegmentPlan& plan : analysis.plans) lanes = std::max(lanes, plan.assignment.lanes);
    out.line("", "the policy's own plan takes %s, more than --memory-limit allows: instead of it %s, on at most %s",
             bytes_text(analysis.memory_without_limit).c_str(), analysis.chosen.c_str(),
             plural(lanes, "stream").c_str());
  }
}

void reason_lines(Text& out, const std::vector<OpsWithReason>& ops) {
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(ops.size(), kShown); ++i) {
    char line[64];
    std::snprintf(line, sizeof line, "  %6u  ", ops[i].count);
    out.raw(line + shortened(ops[i].what, 60));
    out.raw("          because " + shortened(ops[i].why, 200));
  }
  if (ops.size() > kShown) out.raw("  and " + std::to_string(ops.size() - kShown) + " more; --json lists all");
}

void communicating_lines(Text& out, const Analysis& analysis) {
  if (const std::vector<OpsWithReason> communicating = communicating_ops(analysis); !communicating.empty()) {
    out.blank();
    out.raw("Kept in the program's order among each other, and on one lane, since they may be talking to others:");
    reason_lines(out, communicating);
  }
  const auto waiting = std::ranges::count_if(analysis.accesses.ops, &OpAccesses::blocks_wait);
  if (waiting == 0) return;
  out.blank();
  out.raw("Ops whose blocks wait for each other, as a rule says, kept in the program's order among these: " +
          std::to_string(waiting));
}

void assumed_lines(Text& out, const Analysis& analysis) {
  const std::vector<OpsWithReason> assumed = assumed_ops(analysis);
  if (assumed.empty()) return;
  out.blank();
  out.raw("Assumed to read and write everything, so ordered with every other op:");
  reason_lines(out, assumed);
  out.raw("  A rules file can tell what a kernel reads and writes: --rules FILE, docs/howto/write-rules.md.");
}

// The ops for which `why_of` gives a reason (an index into StepAccesses::reasons, else kNone).
template <typename WhyOf>
std::vector<OpsWithReason> gathered(const Analysis& analysis, WhyOf why_of) {
  std::map<std::pair<std::string, std::string>, std::uint32_t> counted;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> by_id;  // function (or kind) and reason
  const Trace& trace = analysis.file->trace;
  auto calls = analysis.step.calls();
  auto functions = static_cast<std::uint32_t>(trace.functions.size());
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const std::uint32_t why = why_of(analysis.accesses.ops[op]);
    if (why == kNone) continue;
    const TraceCall& call = trace.calls[calls[op]];
    std::uint32_t what =
        call.kind == CallKind::launch ? call.function : functions + static_cast<std::uint32_t>(call.kind);
    ++by_id[{what, why}];
  }
  for (const auto& [id, times] : by_id) {
    std::string what = id.first < functions ? kernel_name(trace.functions[id.first])
                                            : std::string(name(static_cast<CallKind>(id.first - functions)));
    counted[{what, analysis.accesses.reasons[id.second]}] += times;
  }
  std::vector<OpsWithReason> result;
  for (const auto& [key, times] : counted) result.push_back({key.first, key.second, times});
  std::stable_sort(result.begin(), result.end(),
                   [](const OpsWithReason& a, const OpsWithReason& b) { return a.count > b.count; });
  return result;
}

void conflict_lines(Text& out, const Analysis& analysis) {
  if (analysis.conflicts.empty()) return;
  out.blank();
  out.raw("Conflicts of evidence; what is said to be read is taken to be written, too:");
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(analysis.conflicts.size(), kShown); ++i)
    out.raw("  " + conflict_text(analysis, analysis.conflicts[i]));
  if (analysis.conflicts.size() > kShown)
    out.raw("  and " + std::to_string(analysis.conflicts.size() - kShown) + " more; --json lists all");
}

void race_lines(Text& out, const Analysis& analysis) {
  if (analysis.dependencies.race_count == 0) return;
  out.blank();
  out.raw(
      "Possible races: the program leaves these ops unordered, and they touch the same memory, or may both be talking "
      "to others (" +
      races_text(analysis.dependencies) + "):");
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(analysis.dependencies.races.size(), kShown); ++i) {
    const Race& race = analysis.dependencies.races[i];
    out.raw("  op " + std::to_string(race.first) + " " + describe_op(analysis, race.first, 40) + "  and  op " +
            std::to_string(race.second) + " " + describe_op(analysis, race.second, 40) +
            (race.communicate       ? ", which may both be talking to others"
             : race.object == kNone ? ", of which one touches everything"
                                    : ", in " + describe_object(analysis, race.object)));
  }
}

// What the freedom of the schedule rests on.
void parallelism_line(Text& out, const Analysis& analysis) {
  const Parallelism& parallelism = analysis.parallelism;
  if (parallelism.all() == 0) {
    out.line("unordered pairs", "none: no two ops of one graph may run side by side");
    return;
  }
  std::string shares;
  for (int i = 0; i < kEvidences; ++i) {
    auto evidence = static_cast<Evidence>(i);
    if (parallelism.pairs[i] == 0) continue;
    char share[32];
    std::snprintf(share, sizeof share, " %.3g %%", 100 * parallelism.share(evidence));
    shares.append(shares.empty() ? "" : ", ").append(name(evidence)).append(share);
  }
  out.line("unordered pairs", "%s%llu, by evidence: %s", parallelism.exact ? "" : "about ", Count{parallelism.all()},
           shares.c_str());
}

bool simulated(const Trace& trace) { return trace.device.find("Simulated") != std::string::npos; }

void measured_line(Text& out, const Analysis& analysis) {
  const MeasuredStep& measured = analysis.measured;
  if (measured.repeats == 0) return;
  out.line("measured", "the GPU is busy for %s of %s from a step's first op to its last (median of %s%s)",
           us_text(measured.busy_us).c_str(), us_text(measured.span_us).c_str(),
           plural(measured.repeats, "repeat").c_str(), simulated(analysis.file->trace) ? ", simulated time" : "");
}

void policy_lines(Text& out, const Analysis& analysis) {
  out.blank();
  auto row = [&](const std::string& policy, const std::string& streams, const std::string& syncs,
                 const std::string& device, const std::string& step, const std::string& gain, const char* mark) {
    char line[200];
    std::snprintf(line, sizeof line, "%-12s %8s %8s %16s %16s %10s%s", policy.c_str(), streams.c_str(), syncs.c_str(),
                  device.c_str(), step.c_str(), gain.c_str(), mark);
    out.raw(line);
  };
  // What the program's own submission costs is only modelled for one stream.
  bool compared = analysis.order->streams() == 1;
  row("policy", "streams", "syncs", "graphs on GPU", "whole step", compared ? "speed-up" : "", "");
  if (compared) row("as recorded", "1", "0", "-", us_text(analysis.program_us), "1.00", "");
  for (const PolicyOutcome& outcome : analysis.policies) {
    char gain[32] = "";
    if (compared && outcome.step_us > 0)
      std::snprintf(gain, sizeof gain, "%.2f", analysis.program_us / outcome.step_us);
    row(std::string(outcome.policy), std::to_string(outcome.lanes), std::to_string(outcome.synchronizations),
        us_text(outcome.device_us), us_text(outcome.step_us), gain,
        outcome.policy == analysis.chosen ? "  <- chosen" : "");
  }
  out.raw(analysis.measured.ops == 0
              ? "Times are predicted by a simple model of the device, not measured."
              : "Times are predicted by a simple model of the device, from the times that the ops took when recorded.");
}

}  // namespace

std::string conflict_text(const Analysis& analysis, const EvidenceConflict& conflict) {
  const TraceFunction& function = analysis.file->trace.functions[conflict.function];
  std::string text = "kernel ";
  text.append(shortened(kernel_name(function), 100)).append(", parameter ").append(std::to_string(conflict.parameter));
  if (const ParamLayout& param = (*function.params)[conflict.parameter]; param.size > 8)
    text.append(" (byte ").append(std::to_string(conflict.at - param.offset)).append(")");
  text.append(": ").append(conflict.basis).append(" (").append(name(conflict.evidence)).append(")");
  text.append(conflict.touched ? " says that it is only read" : " does not say that it is touched");
  text.append(", but it was seen to be written in ").append(std::to_string(conflict.launches)).append(" of ");
  text.append(std::to_string(conflict.compared)).append(" launches, first at seq ");
  return text.append(std::to_string(conflict.first_seq));
}

std::vector<OpsWithReason> assumed_ops(const Analysis& analysis) {
  return gathered(analysis, [](const OpAccesses& op) { return op.role == OpRole::barrier ? op.why : kNone; });
}

std::vector<OpsWithReason> communicating_ops(const Analysis& analysis) {
  return gathered(analysis, [](const OpAccesses& op) { return op.communicates_why; });
}

// Calls of a repeat, up to the op behind it: the median over all repeats.
static std::uint64_t median_calls(const Analysis& analysis) {
  const Step& step = analysis.step;
  std::vector<std::uint64_t> found;
  for (std::uint32_t begin : step.begins) {
    std::size_t behind = begin + std::size_t{step.period};
    std::size_t end = behind < step.ops.size() ? step.ops[behind] : analysis.file->trace.calls.size();
    found.push_back(end - step.ops[begin]);
  }
  auto middle = found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2);
  std::nth_element(found.begin(), middle, found.end());
  return *middle;
}

Counts count(const Analysis& analysis) {
  Counts counts;
  auto calls = analysis.step.calls();
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    ++counts.ops_by_kind[static_cast<int>(analysis.file->trace.calls[calls[op]].kind)];
    ++counts.ops_by_submit[static_cast<int>(analysis.segments.submit[op])];
    ++counts.ops_by_evidence[static_cast<int>(analysis.accesses.ops[op].evidence)];
  }
  for (const Dependency& dependency : analysis.dependencies.all) {
    ++counts.dependencies_by_kind[static_cast<int>(dependency.kind)];
    ++counts.dependencies_by_evidence[static_cast<int>(dependency.evidence)];
  }
  for (const StepObject& object : analysis.objects.objects) {
    ++(object.step_local ? counts.step_local_objects : counts.external_objects);
    (object.step_local ? counts.step_local_bytes : counts.external_bytes) += object.size;
  }
  counts.calls = median_calls(analysis);
  const Segmentation& segments = analysis.segments;
  counts.host_waits =
      static_cast<std::uint64_t>(std::count(segments.observed.begin(), segments.observed.end(), std::uint8_t{1})) +
      (segments.observed_at_end ? 1 : 0);
  for (const char* why : segments.why_direct)
    if (why != nullptr) ++counts.direct[why];
  return counts;
}

std::string text_report(const Analysis& analysis) {
  Text out;
  trace_lines(out, analysis);
  if (analysis.step.period == 0) {
    out.line("step", "none: %s", analysis.step.why_none.c_str());
    return out.take();
  }
  Counts counts = count(analysis);
  step_lines(out, analysis);
  out.line("ops", "%s",
           listed([](std::size_t i) { return name(static_cast<CallKind>(i)); }, counts.ops_by_kind,
                  std::size(counts.ops_by_kind))
               .c_str());
  out.line("streams", "%u", analysis.order->streams());
  out.line("objects", "%s (%s) of the step's own, %llu (%s) of the program's",
           std::to_string(counts.step_local_objects).c_str(), bytes_text(counts.step_local_bytes).c_str(),
           Count{counts.external_objects}, bytes_text(counts.external_bytes).c_str());
  dependency_lines(out, analysis, counts);
  segment_lines(out, analysis, counts);
  parallelism_line(out, analysis);
  measured_line(out, analysis);
  communicating_lines(out, analysis);
  assumed_lines(out, analysis);
  conflict_lines(out, analysis);
  race_lines(out, analysis);
  policy_lines(out, analysis);
  return out.take();
}

}  // namespace nimble::analyzer
