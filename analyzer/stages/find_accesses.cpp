#include "analyzer/stages/find_accesses.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analyzer/access/non_pointer_words.h"
#include "analyzer/access/sources/exact.h"
#include "analyzer/access/sources/graph.h"
#include "analyzer/access/sources/observed.h"
#include "analyzer/access/sources/proven.h"
#include "analyzer/access/sources/rules.h"
#include "analyzer/access/sources/signature.h"
#include "analyzer/access/workspace_hazards.h"
#include "analyzer/order/communication.h"
#include "analyzer/order/onlookers.h"
#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {
namespace {

// All sources of evidence, in order of strength. `seen`, as far as it is believed, and `observed` may be null.
std::vector<std::unique_ptr<AccessSource>> sources_of(const Trace& trace, const AnalysisOptions& options,
                                                      HeldPointers& held, const Observations* seen,
                                                      std::unique_ptr<AccessSource> observed) {
  std::vector<std::unique_ptr<AccessSource>> sources;
  sources.push_back(std::make_unique<ExactAccess>());
  std::vector<AccessSource*> for_kernels;
  auto for_kernel = [&](std::unique_ptr<AccessSource> source) {
    source = within_trust(std::move(source), options.trust);
    for_kernels.push_back(source.get());
    sources.push_back(std::move(source));
  };
  for_kernel(std::make_unique<ProvenAccessSource>(trace, true));
  for_kernel(std::make_unique<RulesAccess>(trace, options.rules, held));
  for_kernel(std::make_unique<ProvenAccessSource>(trace, false));
  for_kernel(std::make_unique<SignatureAccess>(trace, held, seen));
  if (observed) for_kernel(std::move(observed));
  sources.push_back(std::make_unique<GraphAccess>(for_kernels));
  return sources;
}

// What the ops of the step touch. Returns what became of them, where accesses rest on pointers in memory.
std::optional<HeldPointers::Outcome> infer(Analysis& analysis, const AnalysisOptions& options,
                                           HeldPointers::Step step) {
  const Trace& trace = analysis.file->trace;
  auto calls = analysis.step.calls();
  step.calls = calls;
  const Observations seen(trace, *analysis.table);
  ConflictFinder conflicts(trace, seen);
  const bool believes_sight = options.trust == Evidence::observed;
  HeldPointers held(trace, *analysis.table, std::move(step), options.rules, believes_sight ? &seen : nullptr);
  const auto sources = sources_of(
      trace, options, held, believes_sight ? &seen : nullptr,
      std::make_unique<ObservedAccess>(trace, *analysis.table, analysis.step, seen, believes_sight ? &held : nullptr));
  analysis.accesses = infer_accesses(trace, *analysis.table, analysis.objects, calls, sources, &held, &conflicts);
  find_scratch(trace, *analysis.table, seen, analysis.objects, calls, analysis.accesses);
  analysis.conflicts = conflicts.take();
  if (options.step)
    analysis.led_nowhere = words_that_led_nowhere(trace, *analysis.table, seen, analysis.accesses, calls);
  return held.asked() ? std::optional(held.outcome()) : std::nullopt;
}

void infer(Analysis& analysis, const AnalysisOptions& options) {
  HeldPointers::Step step;
  for (std::uint32_t i = 0; i < analysis.step.begins.size(); ++i) {
    if (analysis.step.shares_pattern[i] == 0) continue;
    for (const std::uint32_t call : analysis.step.calls_of(i)) {
      if (step.repeats.size() <= call) step.repeats.resize(call + std::size_t{1}, 0);
      step.repeats[call] = 1;
    }
  }
  auto outcome = infer(analysis, options, step);
  if (!outcome) return;
  // Once more, now that it is known which ops replay looks at, until the step before is taken to be what the step is.
  const Segmentation segments = cut_into_segments(analysis.file->trace, analysis.step, analysis.accesses);
  for (const Submit submit : segments.submit) step.uncompared.push_back(submit == Submit::direct);
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    step.before = *outcome;
    outcome = infer(analysis, options, step);
    if (!outcome || *outcome == step.before) return;
  }
  // Nothing of the step before is known.
  std::fill(step.before.known.begin(), step.before.known.end(), 0);
  infer(analysis, options, step);
}

}  // namespace

void find_accesses(Analysis& analysis, std::span<const Step* const> kinds, const AnalysisOptions& options) {
  const Trace& trace = analysis.file->trace;
  const auto calls = analysis.step.calls();
  analysis.objects = objects_of_step(trace, *analysis.table, calls);
  infer(analysis, options);
  // Of a step that somebody names what comes around it may be anything.
  if (!options.step) find_onlookers(trace, *analysis.table, kinds, analysis.step, analysis.accesses, analysis.objects);
  find_communication(trace, analysis.objects, calls, options.rules, options.trust, analysis.accesses);
}

StepAccesses accesses_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                         std::span<const std::uint32_t> calls, const AnalysisOptions& options) {
  HeldPointers::Step step;
  step.calls = calls;
  HeldPointers held(trace, table, std::move(step), options.rules);
  const auto sources = sources_of(trace, options, held, nullptr, nullptr);
  return infer_accesses(trace, table, objects, calls, sources, &held);
}

}  // namespace nimble::analyzer
