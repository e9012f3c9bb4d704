#include "analyzer/ledger/gains.h"

#include <string_view>

namespace nimble::analyzer {
namespace {

const PolicyOutcome* outcome_of(const StepAnalysis& analysis, std::string_view policy) {
  for (const PolicyOutcome& outcome : analysis.plan.policies)
    if (outcome.policy == policy) return &outcome;
  return nullptr;
}

bool is_for_want_of_the_host(LossCause cause) {
  return cause == LossCause::host_code || cause == LossCause::host_call || cause == LossCause::start;
}

}  // namespace

std::optional<Gains> predict_gains(const StepAnalysis& analysis, const Ledger& ledger) {
  if (ledger.times.repeats == 0 || !ledger.times.one_clock) return std::nullopt;
  Gains gains;
  gains.graph_us = ledger.step_us;
  for (const LedgerEntry& entry : ledger.entries)
    if (is_for_want_of_the_host(entry.cause)) gains.graph_us -= entry.idle_us;
  if (analysis.plan.status != kExitOk) return gains;
  const PolicyOutcome* const chosen = outcome_of(analysis, analysis.plan.chosen);
  const PolicyOutcome* const single = outcome_of(analysis, "single");
  // The program's own streams may do as much: the model does not know.
  if (!chosen || analysis.order.program->streams() != 1) return gains;
  gains.replay_us = chosen->step_us;
  if (single && single->device_us > 0) gains.streams_us = gains.graph_us * chosen->device_us / single->device_us;
  return gains;
}

}  // namespace nimble::analyzer
