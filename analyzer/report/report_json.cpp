// The report as JSON.
#include <numeric>

#include "analyzer/base/json_text.h"
#include "analyzer/report/counts.h"
#include "analyzer/report/report.h"

namespace nimble::analyzer {
namespace {

template <typename Name>
void named_counts(JsonText& out, std::string_view key, const std::uint64_t* counts, std::size_t n, Name name_of) {
  out.key(key).open('{');
  for (std::size_t i = 0; i < n; ++i) out.key(name_of(i)).number(counts[i]);
  out.close('}').newline();
}

std::string_view evidence_name(std::size_t i) { return name(static_cast<Evidence>(i)); }

void step(JsonText& out, const Analysis& analysis, const Counts& counts) {
  const Step& step = analysis.step;
  out.key("step").open('{');
  out.key("ops").number(step.period).key("calls").number(counts.calls).key("repeats").number(step.begins.size());
  out.key("prologue").number(step.prologue()).key("extras").number(step.extras());
  out.key("epilogue").number(step.epilogue()).key("patterns").number(step.patterns);
  out.key("same_pattern").number(step.same_pattern).key("shown").number(step.representative);
  out.key("first_seq").number(analysis.input.trace().calls[step.calls().front()].seq);
  if (step.marked) out.key("marked").number(step.marked).key("name").text(step.name);
  out.key("streams").number(analysis.order.program->streams()).close('}').newline();
  out.key("other_kinds").open('[');
  for (const StepAnalysis& other : analysis.others) {
    out.open('{').key("ops").number(other.step.period).key("repeats").number(other.step.begins.size());
    out.key("segments").number(other.cut.segments.segments.size()).key("first_seq");
    out.number(analysis.input.trace().calls[other.step.calls().front()].seq).close('}');
  }
  out.close(']').key("kinds_left_out").open('[');
  for (const std::string& why : analysis.kinds_left_out) out.text(why);
  out.close(']').newline();
}

void coverage(JsonText& out, const TraceCoverage& coverage) {
  out.key("coverage").open('{').key("measured").boolean(coverage.why_not.empty());
  out.key("why_not").text(coverage.why_not).key("seen").number(coverage.seen);
  out.key("recorded").number(coverage.recorded).key("missed").open('{');
  for (const auto& [symbol, times] : coverage.missed) out.key(symbol).number(times);
  out.close('}').close('}').newline();
}

void probe(JsonText& out, const Trace& trace) {
  if (!trace.probing) return;
  const TraceProbing& probing = *trace.probing;
  out.key("probe").open('{').key("launches").number(probing.launches).key("compared").number(probing.compared);
  out.key("bytes").number(probing.bytes).key("ms").real(probing.ms).key("limit_bytes").number(probing.limit_bytes);
  out.key("too_large").number(probing.too_large).key("why_ended").text(probing.why_ended).close('}').newline();
}

void ops_with_reason(JsonText& out, std::string_view key, const std::vector<OpsWithReason>& list) {
  out.key(key).open('[');
  for (const OpsWithReason& ops : list)
    out.newline().open('{').key("what").text(ops.what).key("why").text(ops.why).key("ops").number(ops.count).close('}');
  out.close(']').newline();
}

void objects(JsonText& out, const StepAnalysis& analysis, const Counts& counts) {
  const StepPlan& plan = analysis.plan;
  out.key("objects").open('{');
  out.key("step_local").number(counts.step_local_objects).key("step_local_bytes").number(counts.step_local_bytes);
  out.key("external").number(counts.external_objects).key("external_bytes").number(counts.external_bytes);
  out.key("plan_bytes").number(plan.memory.arena_bytes).key("peak_bytes").number(plan.memory.program_peak_bytes);
  out.key("unpacked_bytes").number(plan.memory.unpacked_bytes).key("plan_bytes_without_limit");
  if (plan.memory_without_limit > 0)
    out.number(plan.memory_without_limit);
  else
    out.null();
  out.close('}').newline();
}

void dependencies(JsonText& out, const StepOrder& order, const Counts& counts) {
  out.key("dependencies").open('{');
  out.key("all").number(order.dependencies.all.size());
  out.key("reduced").number(order.reduced.edges().size()).newline();
  named_counts(out, "by_kind", counts.dependencies_by_kind, kDependencyKinds,
               [](std::size_t i) { return name(static_cast<DependencyKind>(i)); });
  named_counts(out, "by_evidence", counts.dependencies_by_evidence, kEvidences, evidence_name);
  out.close('}').newline();
  out.key("races").number(order.dependencies.race_count).newline();
}

void limits(JsonText& out, const StepOrder& order, const StepTimes& times) {
  out.key("critical_path").open('{').key("ops").number(times.critical.nodes);
  out.key("predicted_us").real(times.critical.us).close('}').newline();
  out.key("max_concurrency").open('{').key("ops").number(order.concurrency.nodes);
  out.key("exact").boolean(order.concurrency.exact).close('}').newline();
  out.key("measured").open('{').key("ops").number(times.measured.ops);
  out.key("repeats").number(times.measured.repeats).key("busy_us").real(times.measured.busy_us);
  out.key("span_us").real(times.measured.span_us).close('}').newline();
}

void segments(JsonText& out, const StepAnalysis& analysis) {
  out.key("segments").open('[');
  for (std::size_t s = 0; s < analysis.plan.lanes.size(); ++s) {
    const SegmentPlan& plan = analysis.plan.lanes[s];
    const auto& ops = analysis.cut.segments.segments[s].ops;
    out.newline().open('{').key("first").number(ops.front()).key("last").number(ops.back());
    out.key("ops").number(ops.size()).key("edges").number(plan.enforced.edges().size());
    out.key("streams").number(plan.assignment.lanes).key("synchronizations").number(plan.synchronizations);
    out.key("predicted_us").real(plan.predicted_us).close('}');
  }
  out.close(']').newline();
  out.key("pauses").open('[');
  for (const std::uint32_t op : analysis.cut.pauses) out.number(op);
  out.close(']').newline();
  out.key("early_cuts").open('{').key("places").number(analysis.cut.early_cuts);
  out.key("predicted_uncut_us").real(analysis.cut.uncut_us).close('}').newline();
}

void host(JsonText& out, const HostTime& host, const Counts& counts) {
  out.key("host").open('{').key("repeats").number(host.repeats);
  out.key("own_us").real(std::accumulate(host.before_us.begin(), host.before_us.end(), 0.0));
  out.close('}').newline();
  out.key("host_waits").number(counts.host_waits).newline();
  out.key("direct").open('[');
  for (const auto& [why, times] : counts.direct)
    out.newline().open('{').key("why").text(why).key("ops").number(times).close('}');
  out.close(']').newline();
}

void policies(JsonText& out, const StepAnalysis& analysis) {
  out.key("as_recorded_predicted_us").real(analysis.cut.program_us).newline();
  out.key("policies").open('[');
  for (const PolicyOutcome& outcome : analysis.plan.policies) {
    out.newline().open('{').key("policy").text(outcome.policy).key("streams").number(outcome.lanes);
    out.key("synchronizations").number(outcome.synchronizations);
    out.key("predicted_graphs_us").real(outcome.device_us).key("predicted_step_us").real(outcome.step_us).close('}');
  }
  out.close(']').newline();
}

void evidence(JsonText& out, const StepAnalysis& analysis) {
  const Parallelism& parallelism = analysis.plan.parallelism;
  out.key("trust").text(name(analysis.evidence.trust)).newline();
  out.key("unordered_pairs").open('{').key("all").number(parallelism.all());
  out.key("estimated").boolean(!parallelism.exact).newline();
  named_counts(out, "by_evidence", parallelism.pairs, kEvidences, evidence_name);
  out.close('}').newline();
  out.key("conflicts").open('[');
  for (const EvidenceConflict& conflict : analysis.evidence.conflicts) {
    out.newline().open('{').key("kernel").text(analysis.input.trace().functions[conflict.function].name);
    out.key("parameter").number(conflict.parameter).key("byte").number(conflict.at);
    out.key("evidence").text(name(conflict.evidence)).key("said_by").text(conflict.basis);
    out.key("said_read").boolean(conflict.touched).key("seen_written").number(conflict.launches);
    out.key("compared").number(conflict.compared).key("first_seq").number(conflict.first_seq);
    out.key("text").text(conflict_text(analysis, conflict)).close('}');
  }
  out.close(']').newline();
  ops_with_reason(out, "communicating", communicating_ops(analysis));
  ops_with_reason(out, "assumed", assumed_ops(analysis));
}

// All that there is to say if a step was found.
void found(JsonText& out, const Analysis& analysis) {
  const Counts counts = count(analysis);
  step(out, analysis, counts);
  named_counts(out, "ops_by_kind", counts.ops_by_kind, std::size(counts.ops_by_kind),
               [](std::size_t i) { return name(static_cast<CallKind>(i)); });
  named_counts(out, "ops_by_submit", counts.ops_by_submit, std::size(kSubmitNames),
               [&](std::size_t i) { return kSubmitNames[i]; });
  named_counts(out, "ops_by_evidence", counts.ops_by_evidence, kEvidences, evidence_name);
  objects(out, analysis, counts);
  dependencies(out, analysis.order, counts);
  limits(out, analysis.order, analysis.times);
  segments(out, analysis);
  host(out, analysis.times.host, counts);
  policies(out, analysis);
  evidence(out, analysis);
}

}  // namespace

std::string json_report(const Analysis& analysis) {
  const Trace& trace = analysis.input.trace();
  JsonText out;
  out.open('{').key("nimble_report").number(1).newline();
  out.key("trace").open('{').key("digest").text(analysis.input.file->digest).key("program").text(trace.program);
  out.key("device").text(trace.device).key("calls").number(trace.calls.size());
  out.key("ops").number(analysis.step.ops.size()).key("complete").boolean(trace.complete);
  out.key("dropped").number(trace.dropped).close('}').newline();
  coverage(out, trace.coverage);
  probe(out, trace);
  if (analysis.step.period != 0) found(out, analysis);
  out.key("policy").text(analysis.plan.chosen).newline();
  out.key("status").number(analysis.plan.status).key("why_no_schedule").text(analysis.plan.why_no_schedule).newline();
  out.close('}');
  return out.take() + "\n";
}

}  // namespace nimble::analyzer
