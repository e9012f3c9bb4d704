#include "analyzer/report/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>

#include "analyzer/base/text.h"
#include "analyzer/report/beliefs.h"
#include "analyzer/report/counts.h"
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

// "launch 12, copy 3"; empty if all are 0.
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

void trace_lines(Text& out, const StepAnalysis& analysis) {
  const Trace& trace = analysis.input.trace();
  out.line("trace", "%s (%s, %s)", shortened(analysis.input.file->path, 120).c_str(),
           plural(trace.calls.size(), "call").c_str(), (plural(analysis.step.ops.size(), "op") + " ran").c_str());
  if (!trace.program.empty()) out.line("program", "%s", shortened(trace.program, 100).c_str());
  if (!trace.device.empty()) out.line("device", "%s", shortened(trace.device, 100).c_str());
  if (!trace.complete) out.line("", "the file is incomplete: the program ended without closing it");
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

std::size_t ops_in_graphs(const StepAnalysis& analysis) {
  std::size_t ops = 0;
  for (const Segment& segment : analysis.cut.segments.segments) ops += segment.ops.size();
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
  for (const StepAnalysis& other : analysis.others)
    out.line("another kind", "%s, %s (%.1f %% of all ops), %s of them in %s", plural(other.step.period, "op").c_str(),
             plural(other.step.begins.size(), "time").c_str(),
             100.0 * static_cast<double>(other.step.period) * static_cast<double>(other.step.begins.size()) /
                 static_cast<double>(step.ops.size()),
             std::to_string(ops_in_graphs(other)).c_str(), plural(other.cut.segments.segments.size(), "graph").c_str());
  for (const std::string& why : analysis.kinds_left_out) out.line("left out", "%s", shortened(why, 200).c_str());
  out.line("shown", "repeat %u of %zu, which begins at seq %llu", step.representative + 1, step.begins.size(),
           Count{analysis.input.trace().calls[step.calls().front()].seq});
}

void dependency_lines(Text& out, const StepAnalysis& analysis, const Counts& counts) {
  std::string believed =
      analysis.evidence.trust == kDefaultTrust ? "" : ", --trust " + std::string(name(analysis.evidence.trust));
  out.line(
      "accesses", "%s (ops%s)",
      listed([](std::size_t i) { return name(static_cast<Evidence>(i)); }, counts.ops_by_evidence, kEvidences).c_str(),
      believed.c_str());
  out.line("dependencies", "%zu; %zu of them imply the others", analysis.order.dependencies.all.size(),
           analysis.order.reduced.edges().size());
  if (!analysis.order.dependencies.all.empty()) {
    out.line("  by kind", "%s",
             listed([](std::size_t i) { return name(static_cast<DependencyKind>(i)); }, counts.dependencies_by_kind,
                    kDependencyKinds)
                 .c_str());
    out.line("  by evidence", "%s",
             listed([](std::size_t i) { return name(static_cast<Evidence>(i)); }, counts.dependencies_by_evidence,
                    kEvidences)
                 .c_str());
  }
  out.line("critical path", "%s, %s predicted", plural(analysis.times.critical.nodes, "op").c_str(),
           us_text(analysis.times.critical.us).c_str());
  out.line("concurrency", "%s%u ops side by side, by dependencies alone",
           analysis.order.concurrency.exact ? "at most " : "at least ", analysis.order.concurrency.nodes);
}

double chosen_step_us(const StepAnalysis& analysis) {
  for (const PolicyOutcome& outcome : analysis.plan.policies)
    if (outcome.policy == analysis.plan.chosen) return outcome.step_us;
  return 0;
}

void segment_lines(Text& out, const StepAnalysis& analysis, const Counts& counts) {
  std::size_t largest = 0;
  for (const Segment& segment : analysis.cut.segments.segments) largest = std::max(largest, segment.ops.size());
  auto submitted = [&](Submit submit) { return Count{counts.ops_by_submit[static_cast<int>(submit)]}; };
  out.line("segments", "%zu (largest: %zu ops); ops in graphs %llu, planned %llu, direct %llu",
           analysis.cut.segments.segments.size(), largest, submitted(Submit::graph) + submitted(Submit::order),
           submitted(Submit::plan), submitted(Submit::direct));
  for (const auto& [why, times] : counts.direct) out.line("  direct", "%6llu  %s", Count{times}, why.c_str());
  if (!analysis.cut.pauses.empty())
    out.line("  cut at pauses", "in %s, where the program's host code pauses for %s or more",
             plural(analysis.cut.pauses.size(), "place").c_str(), us_text(kPauseUs).c_str());
  if (analysis.cut.early_cuts > 0)
    out.line("  cut early", "in %s, so that the GPU starts while the host is issuing: predicted %s instead of %s",
             plural(analysis.cut.early_cuts, "place").c_str(), us_text(chosen_step_us(analysis)).c_str(),
             us_text(analysis.cut.uncut_us).c_str());
  if (analysis.times.host.repeats > 0)
    out.line("host time", "%s of the program's own between the ops of a step (medians of %s)",
             us_text(std::accumulate(analysis.times.host.before_us.begin(), analysis.times.host.before_us.end(), 0.0))
                 .c_str(),
             plural(analysis.times.host.repeats, "repeat").c_str());
  out.line("host waits", "%llu places where the host waits for the GPU or looks at its progress",
           Count{counts.host_waits});
  if (analysis.plan.memory.arena_bytes > 0)
    out.line("memory plan", "%s, against %s at the program's peak; %s if no two objects shared a byte",
             bytes_text(analysis.plan.memory.arena_bytes).c_str(),
             bytes_text(analysis.plan.memory.program_peak_bytes).c_str(),
             bytes_text(analysis.plan.memory.unpacked_bytes).c_str());
  if (analysis.plan.memory_without_limit > 0) {
    std::uint32_t lanes = 0;
    for (const SegmentPlan& plan : analysis.plan.lanes) lanes = std::max(lanes, plan.assignment.lanes);
    out.line("", "the policy's own plan takes %s, more than --memory-limit allows: %s is used instead, on at most %s",
             bytes_text(analysis.plan.memory_without_limit).c_str(), analysis.plan.chosen.c_str(),
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

void communicating_lines(Text& out, const StepAnalysis& analysis) {
  if (const std::vector<OpsWithReason> communicating = communicating_ops(analysis); !communicating.empty()) {
    out.blank();
    out.raw("Kept in the program's order among each other, and on one lane, because they may be communicating:");
    reason_lines(out, communicating);
  }
  const auto waiting = std::ranges::count_if(analysis.evidence.accesses.ops, &OpAccesses::blocks_wait);
  if (waiting == 0) return;
  out.blank();
  out.raw(
      "Ops with blocks that wait for each other, by a rule, and are kept in the program's order among each other: " +
      std::to_string(waiting));
}

void assumed_lines(Text& out, const StepAnalysis& analysis) {
  const std::vector<OpsWithReason> assumed = assumed_ops(analysis);
  if (assumed.empty()) return;
  out.blank();
  out.raw("Assumed to read and write everything, so ordered with every other op:");
  reason_lines(out, assumed);
  const char* const trust = analysis.evidence.trust == Evidence::proven ? " --trust declared" : "";
  out.raw(std::string("  A rules file can say what a kernel reads and writes: --rules FILE") + trust +
          ", docs/howto/write-rules.md.");
}

void conflict_lines(Text& out, const StepAnalysis& analysis) {
  if (analysis.evidence.conflicts.empty()) return;
  out.blank();
  out.raw("Conflicts of evidence; what is said to be only read is assumed to be written, too:");
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(analysis.evidence.conflicts.size(), kShown); ++i)
    out.raw("  " + conflict_text(analysis, analysis.evidence.conflicts[i]));
  if (analysis.evidence.conflicts.size() > kShown)
    out.raw("  and " + std::to_string(analysis.evidence.conflicts.size() - kShown) + " more; --json lists all");
}

void race_lines(Text& out, const StepAnalysis& analysis) {
  if (analysis.order.dependencies.race_count == 0) return;
  out.blank();
  out.raw(
      "Possible races: the program leaves these ops unordered, and they touch the same memory, or may both be "
      "communicating "
      "(" +
      races_text(analysis.order.dependencies) + "):");
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(analysis.order.dependencies.races.size(), kShown); ++i) {
    const Race& race = analysis.order.dependencies.races[i];
    out.raw("  op " + std::to_string(race.first) + " " + describe_op(analysis, race.first, 40) + "  and  op " +
            std::to_string(race.second) + " " + describe_op(analysis, race.second, 40) +
            (race.communicate       ? ", which may both be communicating"
             : race.object == kNone ? ", one of which touches everything"
                                    : ", in " + describe_object(analysis, race.object)));
  }
}

// What the schedule's parallelism relies on.
void parallelism_line(Text& out, const StepAnalysis& analysis) {
  const Parallelism& parallelism = analysis.plan.parallelism;
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

void beliefs_line(Text& out, const Analysis& analysis) {
  if (const std::string text = beliefs_text(analysis); !text.empty())
    out.line("beliefs", "the order %s; --trust proven does without", text.c_str());
}

bool simulated(const Trace& trace) { return trace.device.find("Simulated") != std::string::npos; }

void measured_line(Text& out, const StepAnalysis& analysis) {
  const MeasuredStep& measured = analysis.times.measured;
  if (measured.repeats == 0) return;
  out.line("measured", "the GPU is busy for %s of %s from a step's first op to its last (median of %s%s)",
           us_text(measured.busy_us).c_str(), us_text(measured.span_us).c_str(),
           plural(measured.repeats, "repeat").c_str(), simulated(analysis.input.trace()) ? ", simulated time" : "");
}

void policy_lines(Text& out, const StepAnalysis& analysis) {
  out.blank();
  auto row = [&](const std::string& policy, const std::string& streams, const std::string& syncs,
                 const std::string& device, const std::string& step, const std::string& gain, const char* mark) {
    char line[200];
    std::snprintf(line, sizeof line, "%-12s %8s %8s %16s %16s %10s%s", policy.c_str(), streams.c_str(), syncs.c_str(),
                  device.c_str(), step.c_str(), gain.c_str(), mark);
    out.raw(line);
  };
  // The cost of the program's own submission is only modelled for one stream.
  bool compared = analysis.order.program->streams() == 1;
  row("policy", "streams", "syncs", "graphs on GPU", "whole step", compared ? "speed-up" : "", "");
  if (compared) row("as recorded", "1", "0", "-", us_text(analysis.cut.program_us), "1.00", "");
  for (const PolicyOutcome& outcome : analysis.plan.policies) {
    char gain[32] = "";
    if (compared && outcome.step_us > 0)
      std::snprintf(gain, sizeof gain, "%.2f", analysis.cut.program_us / outcome.step_us);
    row(std::string(outcome.policy), std::to_string(outcome.lanes), std::to_string(outcome.synchronizations),
        us_text(outcome.device_us), us_text(outcome.step_us), gain,
        outcome.policy == analysis.plan.chosen ? "  <- chosen" : "");
  }
  out.raw(analysis.times.measured.ops == 0
              ? "Times are predicted by a simple model of the device, not measured."
              : "Times are predicted by a simple model of the device, from the times that the ops took when recorded.");
}

}  // namespace

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
  out.line("streams", "%u", analysis.order.program->streams());
  out.line("objects", "%s (%s) of the step's own, %llu (%s) of the program's",
           std::to_string(counts.step_local_objects).c_str(), bytes_text(counts.step_local_bytes).c_str(),
           Count{counts.external_objects}, bytes_text(counts.external_bytes).c_str());
  dependency_lines(out, analysis, counts);
  segment_lines(out, analysis, counts);
  parallelism_line(out, analysis);
  beliefs_line(out, analysis);
  measured_line(out, analysis);
  communicating_lines(out, analysis);
  assumed_lines(out, analysis);
  conflict_lines(out, analysis);
  race_lines(out, analysis);
  policy_lines(out, analysis);
  return out.take();
}

}  // namespace nimble::analyzer
