// What the expressions of a kernel say whatever a launch's values are (analyzer/addresses/evaluate.h).
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "analyzer/addresses/evaluate.h"

namespace nimble::analyzer {

bool is_well_formed(const AddressExtents& extents) {
  using enum ExpressionOp;
  const Expressions& expressions = extents.expressions;
  for (std::size_t at = 0; at < expressions.size(); ++at) {
    const Expression& each = expressions[at];
    if ((each.bits != 32 && each.bits != 64) || each.op > where) return false;
    const bool widens = each.op == widen || each.op == widen_signed || each.op == param_at,
               halves = each.op == low || each.op == high;
    if ((widens && each.bits != 64) || (halves && each.bits != 32)) return false;
    constexpr std::int64_t kMost = 0xffffffff;
    const bool is_small = each.value >= 0 && (each.bits == 64 || each.value <= kMost);
    if (each.op == up_to && !is_small) return false;
    if (each.op == ExpressionOp::launch && (each.value < 0 || each.value >= static_cast<int>(ExpressionLaunch::count)))
      return false;
    const auto relation = each.value & ~kSignedRelation;
    if (each.op == where && (relation < 0 || relation >= static_cast<int>(ExpressionRelation::count))) return false;
    constexpr std::int64_t kMostDivisors = 16;
    if (each.op == divide && (each.value < 0 || each.value > kMostDivisors)) return false;
    if ((each.op == remainder || each.op == remainder_signed) && (each.value < 1 || each.value > kMostDivisors))
      return false;
    if (each.op == param && each.a > each.bits / 8) return false;
    constexpr std::int64_t kMostParams = std::int64_t{1} << 20;  // bytes
    if (is_lookup(each.op) && (each.value < 0 || each.value > kMostParams)) return false;
    if (each.op == number_at && (each.bits != 32 || (each.b != 1 && each.b != 2 && each.b != 4))) return false;
    if (each.op == ExpressionOp::either && each.value < kRestOfChoice) return false;
    for (unsigned i = 0; i < operands_of(each.op); ++i) {
      const std::uint32_t operand = i == 0 ? each.a : each.b;
      if (operand >= expressions.size() || (each.op != either && operand >= at)) return false;
      const bool is_shift = each.op == shift_left || each.op == shift_right || each.op == shift_right_signed;
      if ((is_shift || each.op == when) && i == 1) continue;
      if (expressions[operand].bits != (widens ? 32 : halves ? 64 : each.bits)) return false;
    }
  }
  const auto is_there = [&](std::uint32_t at) { return at < expressions.size(); };
  const auto is_address = [&](const AddressUse& use) {
    return is_there(use.address) && expressions[use.address].bits == 64;
  };
  const auto is_doubt = [&](const AddressDoubt& doubt) {
    return is_there(doubt.happens) && expressions[doubt.happens].bits == 32;
  };
  return std::ranges::all_of(extents.counters, is_there) && std::ranges::all_of(extents.doubts, is_doubt) &&
         std::ranges::all_of(extents.groups, [&](const AddressGroup& group) {
           return !group.at.empty() && std::ranges::all_of(group.uses, is_address);
         });
}

std::vector<NumberAt> numbers_added(const AddressExtents& extents, const AddressGroup& group) {
  using enum ExpressionOp;
  const Expressions& expressions = extents.expressions;
  std::vector<std::uint8_t> seen(expressions.size());
  std::vector<std::uint32_t> open;
  std::vector<NumberAt> found;
  const auto look = [&](std::uint32_t at) {
    if (!std::exchange(seen[at], 1)) open.push_back(at);
  };
  for (const AddressUse& use : group.uses) look(use.address);
  while (!open.empty()) {
    const Expression& each = expressions[open.back()];
    open.pop_back();
    switch (each.op) {
      case param:
        found.push_back({static_cast<std::uint32_t>(each.value), each.a});
        break;
      case param_at:
      case number_at:
        break;  // see KnownLaunch::numbers_added()
      case multiply_high:
      case multiply_high_signed:
      case remainder:
      case remainder_signed:
        break;  // no more than what is divided, or what is divided by
      case divide:
      case shift_left:
      case shift_right:
      case shift_right_signed:
      case where:
      case when:
        look(each.a);
        break;
      default:
        if (operands_of(each.op) > 0) look(each.a);
        if (operands_of(each.op) > 1) look(each.b);
    }
  }
  std::ranges::sort(found);
  const auto rest = std::ranges::unique(found);
  found.erase(rest.begin(), rest.end());
  return found;
}

namespace {

Sources sources_of(const Expressions& expressions, std::span<const std::uint32_t> roots) {
  std::vector<std::uint8_t> seen(expressions.size());
  std::vector<std::uint32_t> open;
  Sources sources;
  std::vector<std::uint32_t>& pieces = sources.params;
  const auto look = [&](std::uint32_t at) {
    if (!std::exchange(seen[at], 1)) open.push_back(at);
  };
  for (const std::uint32_t root : roots) look(root);
  while (!open.empty()) {
    const Expression& each = expressions[open.back()];
    open.pop_back();
    if (operands_of(each.op) > 0) look(each.a);
    if (operands_of(each.op) > 1) look(each.b);
    sources.shape |= each.op == ExpressionOp::launch;
    sources.looks_up |= is_lookup(each.op);
    if (each.op == ExpressionOp::param)
      for (auto at = static_cast<std::uint32_t>(each.value) & ~3u; at < each.value + each.a; at += 4)
        pieces.push_back(at);
  }
  std::ranges::sort(pieces);
  const auto rest = std::ranges::unique(pieces);
  pieces.erase(rest.begin(), rest.end());
  return sources;
}

}  // namespace

bool is_told(const AddressExtents& extents, const AddressGroup& group) {
  return group.complete && std::ranges::all_of(group.uses, [&](const AddressUse& use) {
           std::uint32_t at = use.address;
           while (extents.expressions[at].op == ExpressionOp::when) at = extents.expressions[at].a;
           return extents.expressions[at].op != ExpressionOp::unknown;
         });
}

Sources sources_of(const AddressExtents& extents, const AddressGroup& group) {
  std::vector<std::uint32_t> roots = extents.counters;
  for (const AddressUse& use : group.uses) roots.push_back(use.address);
  return sources_of(extents.expressions, roots);
}

Sources sources_of(const AddressExtents& extents, std::uint32_t expression) {
  return sources_of(extents.expressions, {&expression, 1});
}

}  // namespace nimble::analyzer
