#include "analyzer/diff/step_diff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "analyzer/diff/alignment.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

using Unit = FigureDiff::Unit;

// Times that differ by less are the same: what is printed shows no more.
constexpr double kLeastUs = 0.05;

const PolicyOutcome* chosen(const StepAnalysis& analysis) {
  for (const PolicyOutcome& outcome : analysis.plan.policies)
    if (outcome.policy == analysis.plan.chosen && analysis.plan.status == kExitOk) return &outcome;
  return nullptr;
}

std::vector<FigureDiff> figures_of(const StepAnalysis& analysis, const DeviceModel& device) {
  const Ledger ledger = idle_ledger(analysis, device);
  const bool timed = ledger.times.repeats > 0;
  const PolicyOutcome* const plan = chosen(analysis);
  const auto number = [](std::size_t n) { return static_cast<double>(n); };
  std::vector<FigureDiff> figures{
      {"ops", number(analysis.step.period)},
      {"repeats", number(analysis.step.begins.size())},
      {"step, recorded", timed ? ledger.step_us : -1, -1, Unit::us},
      {"GPU idle", timed ? ledger.idle_us : -1, -1, Unit::us},
      {"GPU narrow", timed ? ledger.narrow_us : -1, -1, Unit::us},
      {"step, replayed (predicted)", plan ? plan->step_us : -1, -1, Unit::us},
      {"critical path", analysis.times.critical.us, -1, Unit::us},
      {"dependencies needed", number(analysis.order.reduced.edges().size())},
      {"ops side by side at most", number(analysis.order.concurrency.nodes)},
      {"graphs", number(analysis.cut.segments.segments.size())},
      {"streams", plan ? number(plan->lanes) : -1},
      {"memory plan", plan ? static_cast<double>(analysis.plan.memory.arena_bytes) : -1, -1, Unit::bytes},
  };
  std::array<std::uint32_t, kEvidences> known{};
  for (const OpAccesses& op : analysis.evidence.accesses.ops) ++known[static_cast<std::size_t>(op.evidence)];
  for (int i = 0; i < kEvidences; ++i)
    figures.push_back(
        {"ops " + std::string(name(static_cast<Evidence>(i))), number(known[static_cast<std::size_t>(i)])});
  return figures;
}

std::string name_of(const StepAnalysis& analysis, std::uint32_t op) {
  const TraceCall& call = analysis.input.trace().calls[analysis.step.calls()[op]];
  std::string text = describe_op(analysis, op, 400);
  if (call.kind == CallKind::launch)
    text += " <" + std::to_string(std::uint64_t{call.grid[0]} * call.grid[1] * call.grid[2]) + " blocks>";
  return text;
}

// The ops of both steps, by the numbers of their names.
struct Named {
  std::vector<std::string> names;
  std::vector<std::uint64_t> ops[2];

  Named(const StepAnalysis& first, const StepAnalysis& second) {
    std::unordered_map<std::string, std::uint64_t> numbers;
    for (int side = 0; side < 2; ++side) {
      const StepAnalysis& analysis = side == 0 ? first : second;
      for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
        const auto [at, is_new] = numbers.try_emplace(name_of(analysis, op), names.size());
        if (is_new) names.push_back(at->first);
        ops[side].push_back(at->second);
      }
    }
  }
};

std::vector<OpsDiff> ops_diff(const Named& named, const StepAnalysis& first, const StepAnalysis& second) {
  std::vector<OpsDiff> all(named.names.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].name = named.names[i];
  for (int side = 0; side < 2; ++side)
    for (std::size_t op = 0; op < named.ops[side].size(); ++op) {
      OpsDiff& each = all[named.ops[side][op]];
      ++each.ops[side];
      each.gpu_us[side] += (side == 0 ? first : second).times.costs[op].device_us;
    }
  const auto apart = [](const OpsDiff& each) { return std::abs(each.gpu_us[1] - each.gpu_us[0]); };
  std::erase_if(all, [&](const OpsDiff& each) { return each.ops[0] == each.ops[1] && apart(each) < kLeastUs; });
  std::ranges::stable_sort(all, [&](const OpsDiff& a, const OpsDiff& b) { return apart(a) > apart(b); });
  return all;
}

// Dependencies in `one` between ops that both steps have, where `other` has no dependency of that kind.
void order_diff(const StepAnalysis& one, const StepAnalysis& other, const std::vector<std::uint32_t>& partner,
                bool in_first, std::vector<OrderDiff>& out) {
  std::set<std::tuple<std::uint32_t, std::uint32_t, DependencyKind>> there;
  for (const Dependency& each : other.order.dependencies.all) there.emplace(each.from, each.to, each.kind);
  std::set<std::tuple<std::uint32_t, std::uint32_t, DependencyKind>> told;
  for (const Dependency& each : one.order.dependencies.all) {
    const std::uint32_t from = partner[each.from], to = partner[each.to];
    if (from == kNone || to == kNone || there.contains({from, to, each.kind})) continue;
    if (told.emplace(each.from, each.to, each.kind).second) out.push_back({in_first, each.from, each.to, &each});
  }
}

}  // namespace

StepDiff diff_steps(const StepAnalysis& first, const StepAnalysis& second, const DeviceModel& device) {
  StepDiff diff;
  diff.figures = figures_of(first, device);
  const std::vector<FigureDiff> others = figures_of(second, device);
  for (std::size_t i = 0; i < others.size(); ++i) diff.figures[i].second = others[i].first;

  const Named named(first, second);
  const Alignment alignment = align(named.ops[0], named.ops[1]);
  diff.is_aligned = alignment.exact;
  diff.same = static_cast<std::uint32_t>(alignment.matched.size());
  diff.only[0] = first.step.period - diff.same;
  diff.only[1] = second.step.period - diff.same;
  diff.ops = ops_diff(named, first, second);

  std::vector<std::uint32_t> partner[2];
  partner[0].assign(first.step.period, kNone);
  partner[1].assign(second.step.period, kNone);
  for (const auto& [a, b] : alignment.matched) {
    partner[0][a] = b;
    partner[1][b] = a;
  }
  order_diff(first, second, partner[0], true, diff.order);
  order_diff(second, first, partner[1], false, diff.order);
  return diff;
}

}  // namespace nimble::analyzer
