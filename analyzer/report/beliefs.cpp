#include "analyzer/report/beliefs.h"

#include <algorithm>
#include <cstdint>

#include "analyzer/base/text.h"
#include "nimble/internal/evidence.h"

namespace nimble::analyzer {

namespace {

bool rests_on_beliefs(const StepAnalysis& step) {
  const Parallelism& parallelism = step.plan.parallelism;
  for (int i = 0; i < kEvidences; ++i)
    if (is_belief(static_cast<Evidence>(i)) && parallelism.pairs[i] > 0) return true;
  // A sample of the pairs may have missed those that do.
  return !parallelism.exact && is_belief(step.evidence.trust);
}

}  // namespace

std::string beliefs_text(const Analysis& analysis) {
  std::uint64_t ops = 0, by_evidence[kEvidences] = {};
  const auto add = [&](const StepAnalysis& step) {
    for (const OpAccesses& op : step.evidence.accesses.ops) ++ops, ++by_evidence[static_cast<int>(op.evidence)];
  };
  add(analysis);
  std::ranges::for_each(analysis.others, add);
  if (!rests_on_beliefs(analysis) && std::ranges::none_of(analysis.others, rests_on_beliefs)) return {};
  std::string text;
  for (int i = 0; i < kEvidences; ++i) {
    const auto evidence = static_cast<Evidence>(i);
    if (!is_belief(evidence) || by_evidence[i] == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(by_evidence[i]) + (text.empty() ? " are known by " : " by ");
    text.append(name(evidence)).append(" evidence");
  }
  if (text.empty()) return {};
  return "rests on beliefs: of " + plural(ops, "op") + " " + text;
}

}  // namespace nimble::analyzer
