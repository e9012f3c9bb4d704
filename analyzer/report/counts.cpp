#include "analyzer/report/counts.h"

#include <algorithm>
#include <utility>

#include "analyzer/base/kernel_name.h"
#include "analyzer/base/text.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

// The ops for which `why_of` gives a reason (an index into StepAccesses::reasons, else kNone).
template <typename WhyOf>
std::vector<OpsWithReason> gathered(const StepReading& analysis, WhyOf why_of) {
  std::map<std::pair<std::string, std::string>, std::uint32_t> counted;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> by_id;  // function (or kind) and reason
  const Trace& trace = analysis.input.trace();
  auto calls = analysis.step.calls();
  auto functions = static_cast<std::uint32_t>(trace.functions.size());
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const std::uint32_t why = why_of(analysis.evidence.accesses.ops[op]);
    if (why == kNone) continue;
    const TraceCall& call = trace.calls[calls[op]];
    std::uint32_t what =
        call.kind == CallKind::launch ? call.function : functions + static_cast<std::uint32_t>(call.kind);
    ++by_id[{what, why}];
  }
  for (const auto& [id, times] : by_id) {
    std::string what = id.first < functions ? kernel_name(trace.functions[id.first].name)
                                            : std::string(name(static_cast<CallKind>(id.first - functions)));
    counted[{what, analysis.evidence.accesses.reasons[id.second]}] += times;
  }
  std::vector<OpsWithReason> result;
  for (const auto& [key, times] : counted) result.push_back({key.first, key.second, times});
  std::stable_sort(result.begin(), result.end(),
                   [](const OpsWithReason& a, const OpsWithReason& b) { return a.count > b.count; });
  return result;
}

// Calls of a repeat, up to the op after it: the median over all repeats.
std::uint64_t median_calls(const StepReading& analysis) {
  const Step& step = analysis.step;
  std::vector<std::uint64_t> found;
  for (std::uint32_t begin : step.begins) {
    std::size_t next = begin + std::size_t{step.period};
    std::size_t end = next < step.ops.size() ? step.ops[next] : analysis.input.trace().calls.size();
    found.push_back(end - step.ops[begin]);
  }
  auto middle = found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2);
  std::nth_element(found.begin(), middle, found.end());
  return *middle;
}

}  // namespace

std::string conflict_text(const StepReading& analysis, const EvidenceConflict& conflict) {
  const TraceFunction& function = analysis.input.trace().functions[conflict.function];
  std::string text = "kernel ";
  text.append(shortened(kernel_name(function.name), 100))
      .append(", parameter ")
      .append(std::to_string(conflict.parameter));
  if (const ParamLayout& param = (*function.params)[conflict.parameter]; param.size > 8)
    text.append(" (byte ").append(std::to_string(conflict.at - param.offset)).append(")");
  text.append(": ").append(conflict.basis).append(" (").append(name(conflict.evidence)).append(")");
  text.append(conflict.touched ? " says that it is only read" : " does not say that it is touched");
  text.append(", but it was seen to be written in ").append(std::to_string(conflict.launches)).append(" of ");
  text.append(std::to_string(conflict.compared)).append(" launches, first at seq ");
  return text.append(std::to_string(conflict.first_seq));
}

std::vector<OpsWithReason> assumed_ops(const StepReading& analysis) {
  return gathered(analysis, [](const OpAccesses& op) { return op.role == OpRole::barrier ? op.why : kNone; });
}

std::vector<OpsWithReason> communicating_ops(const StepReading& analysis) {
  return gathered(analysis, [](const OpAccesses& op) { return op.communicates_why; });
}

Counts count(const StepAnalysis& analysis) {
  Counts counts;
  auto calls = analysis.step.calls();
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    ++counts.ops_by_kind[static_cast<int>(analysis.input.trace().calls[calls[op]].kind)];
    ++counts.ops_by_submit[static_cast<int>(analysis.cut.segments.submit[op])];
    ++counts.ops_by_evidence[static_cast<int>(analysis.evidence.accesses.ops[op].evidence)];
  }
  for (const Dependency& dependency : analysis.order.dependencies.all) {
    ++counts.dependencies_by_kind[static_cast<int>(dependency.kind)];
    ++counts.dependencies_by_evidence[static_cast<int>(dependency.evidence)];
  }
  for (const StepObject& object : analysis.objects.objects) {
    ++(object.step_local ? counts.step_local_objects : counts.external_objects);
    (object.step_local ? counts.step_local_bytes : counts.external_bytes) += object.size;
  }
  counts.calls = median_calls(analysis);
  const Segmentation& segments = analysis.cut.segments;
  counts.host_waits =
      static_cast<std::uint64_t>(std::count(segments.observed.begin(), segments.observed.end(), std::uint8_t{1})) +
      (segments.observed_at_end ? 1 : 0);
  for (const char* why : segments.why_direct)
    if (why != nullptr) ++counts.direct[why];
  return counts;
}

}  // namespace nimble::analyzer
