// Asks the sources of evidence about each op, and repeats that until it agrees with what the previous step left in
// memory.
#include "analyzer/stages/find_accesses.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analyzer/access/launch_of.h"
#include "analyzer/access/leaving.h"
#include "analyzer/access/non_pointer_words.h"
#include "analyzer/access/sources/make_sources.h"
#include "analyzer/access/sources/observed.h"
#include "analyzer/access/workspace_hazards.h"
#include "analyzer/order/communication.h"
#include "analyzer/order/onlookers.h"
#include "analyzer/plan/segments.h"
#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {
namespace {

// Infers the accesses of one step, as often as its pointers in memory make it necessary.
class Inference {
 public:
  Inference(const Recording& input, const Step& step, const StepObjects& objects, const AnalysisOptions& options)
      : input_(input),
        step_(step),
        objects_(objects),
        options_(options),
        known_(options.known ? *options.known : own_known_) {
    known_.begin();
  }

  StepEvidence run() {
    PointersInMemory::Step pointers = repeats();
    auto outcome = infer(pointers);
    if (!outcome) return std::move(result_);
    // Again, now that it is known which ops replay compares, until the step before is assumed to be what the step is.
    const Segmentation segments = cut_into_segments(input_.trace(), step_, result_.accesses);
    for (const Submit submit : segments.submit) pointers.uncompared.push_back(submit == Submit::direct);
    constexpr int kMostRounds = 4;
    for (int round = 0; round < kMostRounds; ++round) {
      pointers.before = *outcome;
      outcome = infer(pointers);
      if (!outcome || *outcome == pointers.before) return std::move(result_);
    }
    // It did not settle: nothing about the step before is known.
    std::fill(pointers.before.known.begin(), pointers.before.known.end(), 0);
    infer(pointers);
    return std::move(result_);
  }

 private:
  PointersInMemory::Step repeats() const {
    PointersInMemory::Step result;
    for (std::uint32_t i = 0; i < step_.begins.size(); ++i) {
      if (step_.shares_pattern[i] == 0) continue;
      for (const std::uint32_t call : step_.calls_of(i)) {
        if (result.repeats.size() <= call) result.repeats.resize(call + std::size_t{1}, 0);
        result.repeats[call] = 1;
      }
    }
    return result;
  }

  // Returns what became of the ops, if accesses rest on pointers in memory.
  std::optional<PointersInMemory::Outcome> infer(PointersInMemory::Step repeats) {
    const Trace& trace = input_.trace();
    const ObjectTable& table = *input_.table;
    const auto calls = step_.calls();
    repeats.calls = calls;
    const Observations seen(trace, table);
    ConflictFinder conflicts(trace, seen);
    const bool believes_sight = options_.trust == Evidence::observed;
    PointersInMemory pointers(trace, table, std::move(repeats), options_.rules, believes_sight ? &seen : nullptr);
    const auto sources =
        make_sources(trace, options_.rules, options_.trust, pointers, believes_sight ? &seen : nullptr,
                     std::make_unique<ObservedAccess>(trace, table, step_, seen, believes_sight ? &pointers : nullptr));
    result_.trust = options_.trust;
    result_.accesses = infer_accesses(trace, table, objects_, calls, sources, &pointers, &conflicts, &known_);
    find_workspace_hazards(trace, table, seen, objects_, calls, result_.accesses);
    result_.conflicts = conflicts.take();
    pin_what_is_usual();
    if (options_.step) result_.non_pointer_words = non_pointer_words(trace, table, seen, result_.accesses, calls);
    return pointers.asked() ? std::optional(pointers.outcome()) : std::nullopt;
  }

  // Of what should stay as it is, what was so in all steps of the same pattern; and all of it, where in one of them the
  // launch leaves its objects by it.
  void pin_what_is_usual() {
    const Trace& trace = input_.trace();
    const ObjectTable& table = *input_.table;
    const auto calls = step_.calls();
    KnownLaunches launches(trace, &known_);
    for (std::uint32_t op = 0; op < calls.size(); ++op) {
      Pinned& pinned = result_.accesses.pinned[op];
      if (!pinned.usual_shape && pinned.usual_params.empty()) continue;
      const TraceCall& call = trace.calls[calls[op]];
      Pinned usual = pinned;
      bool leaves = false;
      for (std::uint32_t i = 0; i < step_.begins.size() && !leaves; ++i) {
        const std::uint32_t index = step_.calls_of(i)[op];
        const TraceCall& other = trace.calls[index];
        if (step_.shares_pattern[i] == 0 || other.function != call.function) continue;
        const bool is_same_shape = other.grid == call.grid && other.block == call.block;
        const std::size_t before = usual.usual_params.all().size();
        usual.usual_params.erase_if([&](const PinnedBytes::Piece& piece) {
          const auto [first, count] = piece;
          return other.params.size() != call.params.size() ||
                 !std::equal(call.params.begin() + first, call.params.begin() + first + count,
                             other.params.begin() + first);
        });
        usual.usual_shape &= is_same_shape;
        if (is_same_shape && usual.usual_params.all().size() == before) continue;
        OpQuestion question{trace, other, table.pointers(index), table, table.unsure(index), op, index};
        question.known = launches.of(question);
        leaves = leaves_objects(question, trace.functions[call.function].proof->extents);
      }
      if (!leaves) pinned = std::move(usual);
      pinned.shape |= std::exchange(pinned.usual_shape, false);
      for (const PinnedBytes::Piece& piece : pinned.usual_params.take()) pinned.params.add(piece);
    }
  }

  const Recording& input_;
  const Step& step_;
  const StepObjects& objects_;
  const AnalysisOptions& options_;
  KnownKernels own_known_;
  KnownKernels& known_;
  StepEvidence result_;
};

}  // namespace

StepEvidence find_accesses(const Recording& input, std::span<const Step* const> kinds, const Step& step,
                           const StepObjects& objects, const AnalysisOptions& options) {
  StepEvidence result = Inference(input, step, objects, options).run();
  // Around a step that was given anything may happen: nothing is looked for there.
  std::vector<std::uint8_t> watched;
  if (!options.step) watched = watched_objects(input.trace(), *input.table, kinds, step, result.accesses, objects);
  find_communication(input.trace(), objects, watched, step.calls(), options.rules, options.trust, result.accesses);
  return result;
}

StepAccesses accesses_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                         std::span<const std::uint32_t> calls, const AnalysisOptions& options) {
  PointersInMemory::Step step;
  step.calls = calls;
  PointersInMemory pointers(trace, table, std::move(step), options.rules);
  const auto sources = make_sources(trace, options.rules, options.trust, pointers, nullptr, nullptr);
  return infer_accesses(trace, table, objects, calls, sources, &pointers);
}

}  // namespace nimble::analyzer
