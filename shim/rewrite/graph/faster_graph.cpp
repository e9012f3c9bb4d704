#include "shim/rewrite/graph/faster_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>

namespace nimble::shim {

namespace {

// The gain required of the rewritten graph, in each turn. The driver has two states (context_bounce.h), and in the one
// where kernels follow each other sooner a graph of many edges has less of an advantage: by 0.4 to 1.2 % of a launch
// for BERT's encoder, by up to 0.3 for resnet50 and resnet101, whose own gain is 1.1 to 1.5 and 0.4 to 0.9 %
// (bench/results/2026-11-27-chains-nvidia-h100-2.md). Require the larger gain unless turns are known to have covered
// both states. If they have, require more than noise.
constexpr double kLeastGain = 0.01, kLeastGainInBothStates = 0.002;

}  // namespace

FasterGraph::FasterGraph(const DriverApi& driver, Tune tune) : tune_(tune), tuner_(tune, kLeastGain), clock_(driver) {
  tuner_.exclude(Way::one_stream);
}

void FasterGraph::settle() {
  if (has_settled_.exchange(false, std::memory_order_relaxed) && tuner_.is_within_trial())
    tuner_.ask_for(kLeastGainInBothStates);
}

bool FasterGraph::take_in() {
  const std::uint32_t decisions = tuner_.decisions();
  clock_.read([&](std::uint32_t, Way of, double us) { tuner_.add(of, us); });
  tuner_.done(clock_.late());
  if (tuner_.decisions() == decisions) return false;
  decide();
  return true;
}

void FasterGraph::decide() {
  tuner_.ask_for(kLeastGain);  // nothing is known of another trial yet
  own_for_good_.store(tuner_.ends_replay(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  decided_ = {true, tuner_.settled() == Way::own, tuner_.medians()[static_cast<std::size_t>(Way::own)],
              tuner_.medians()[static_cast<std::size_t>(Way::schedule)]};
}

FasterGraph::Decided FasterGraph::decided() const {
  const std::lock_guard lock(mutex_);
  Decided known = decided_;
  known.any = known.any || tune_ == Tune::off;
  return known;
}

std::string FasterGraph::news(std::uint64_t number) const {
  const auto us = [&](Way way) {
    const double median = tuner_.medians()[static_cast<std::size_t>(way)];
    return median < 0 ? std::string("not timed") : fmt::format("{:.1f} us", median);
  };
  std::string text = fmt::format("graph {}: the {} is launched: {} a launch; the program's own {}", number,
                                 tuner_.settled() == Way::schedule ? "rewritten one" : "program's own",
                                 us(Way::schedule), us(Way::own));
  const std::array<double, Tuner::kTurns> its = tuner_.turns(Way::schedule), own = tuner_.turns(Way::own);
  if (its.back() >= 0 && own.back() >= 0)
    text += fmt::format("; in turns {:.1f}; its own {:.1f}", fmt::join(its, ", "), fmt::join(own, ", "));
  return text;
}

}  // namespace nimble::shim
