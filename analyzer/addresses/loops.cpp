#include "analyzer/addresses/loops.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace nimble::analyzer {
namespace {

constexpr unsigned kMostAlignment = 64;
constexpr std::size_t kMostOpen = 64;  // expressions between a choice and itself

bool is_plain(const Range& range) { return range.reached && !range.indexed && range.base == Range::kNoBase; }

}  // namespace

// The largest that fits all: begins with all that there is, and takes back what is not so.
void Loops::find_alignments() {
  alignments_.assign(expressions_.size(), kMostAlignment);
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::uint32_t at : used_) {
      const unsigned now = alignment(expressions_[at]);
      changed |= now < alignments_[at];
      alignments_[at] = std::min(alignments_[at], now);
    }
  }
}

unsigned Loops::alignment(const Expression& each) const {
  using enum ExpressionOp;
  const auto of = [&](std::uint32_t at) {
    const Range& range = range_(at);
    if (!range.is_number()) return alignments_[at];
    return range.lo == 0 ? kMostAlignment
                         : static_cast<unsigned>(std::countr_zero(static_cast<std::uint64_t>(range.lo)));
  };
  switch (each.op) {
    case constant:
      return each.value == 0 ? kMostAlignment
                             : static_cast<unsigned>(std::countr_zero(static_cast<std::uint64_t>(each.value)));
    case add: {
      // What is left when the lower bits are taken away.
      for (const auto& [whole, rest] : {std::pair{each.a, each.b}, std::pair{each.b, each.a}}) {
        const Expression& minus = expressions_[rest];
        if (minus.op != negate || expressions_[minus.a].op != bit_and) continue;
        const Expression& masked = expressions_[minus.a];
        for (const auto& [value, mask] : {std::pair{masked.a, masked.b}, std::pair{masked.b, masked.a}})
          if (value == whole && expressions_[mask].op == constant && expressions_[mask].value >= 0)
            return static_cast<unsigned>(std::countr_one(static_cast<std::uint64_t>(expressions_[mask].value)));
      }
      return std::min(of(each.a), of(each.b));
    }
    case negate:
    case widen_signed:
    case ExpressionOp::widen:
    case low:
    case where:
    case when:
      return of(each.a);
    case ExpressionOp::either:
      return std::min(of(each.a), of(each.b));
    case multiply:
      return std::min(kMostAlignment, of(each.a) + of(each.b));
    case bit_and:
      return std::max(of(each.a), of(each.b));
    case shift_left: {
      const Range& by = range_(each.b);
      return by.is_number() && by.lo >= 0 && by.lo < kMostAlignment
                 ? std::min(kMostAlignment, of(each.a) + static_cast<unsigned>(by.lo))
                 : of(each.a);
    }
    default:
      return 0;
  }
}

// Those of one choice that are chained together: the further ones have no loop of their own.
std::vector<std::uint32_t> Loops::alternatives(std::uint32_t choice) const {
  std::vector<std::uint32_t> all;
  std::uint32_t at = choice;
  for (;;) {
    const Expression& each = expressions_[at];
    all.push_back(each.a);
    const Expression& rest = expressions_[each.b];
    if (rest.op != ExpressionOp::either || rest.value != 0 || each.b == choice || all.size() > kMostOpen) {
      if (each.b != each.a) all.push_back(each.b);
      return all;
    }
    at = each.b;
  }
}

bool Loops::leads_to(std::uint32_t from, std::uint32_t choice) const {
  std::vector<std::uint8_t> seen(expressions_.size());
  std::vector<std::uint32_t> open{from};
  seen[from] = 1;
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    if (at == choice) return true;
    const Expression& each = expressions_[at];
    for (unsigned i = 0; i < operands_of(each.op); ++i) {
      const std::uint32_t operand = i == 0 ? each.a : each.b;
      if (!std::exchange(seen[operand], 1)) open.push_back(operand);
    }
  }
  return false;
}

// By how much it is more than the choice that it is computed from. Nothing where it is not that and a sum.
std::optional<Loops::Step> Loops::step(std::uint32_t from, std::uint32_t choice,
                                       std::vector<std::uint32_t>& open) const {
  if (from == choice) return Step{};
  if (open.size() > kMostOpen || std::ranges::find(open, from) != open.end()) return std::nullopt;
  const Expression& each = expressions_[from];
  open.push_back(from);
  std::optional<Step> result;
  if (each.op == ExpressionOp::where || each.op == ExpressionOp::when) {
    result = step(each.a, choice, open);
  } else if (each.op == ExpressionOp::either) {
    const auto a = step(each.a, choice, open), b = step(each.b, choice, open);
    if (a && b) result = Step{std::min(a->least, b->least), std::max(a->most, b->most)};
  } else if (each.op == ExpressionOp::add) {
    const bool a_leads = leads_to(each.a, choice), b_leads = leads_to(each.b, choice);
    if (a_leads != b_leads) {
      const auto rest = step(a_leads ? each.a : each.b, choice, open);
      const Range& added = range_(a_leads ? each.b : each.a);
      if (rest && is_plain(added) && !added.is_full(each.bits))
        result = Step{rest->least + added.lo, rest->most + added.hi};
    }
  }
  open.pop_back();
  return result;
}

std::optional<Loops::Induction> Loops::induction(std::uint32_t choice) const {
  Induction result;
  result.alignment = kMostAlignment;
  bool is_first = true;
  const unsigned bits = expressions_[choice].bits;
  for (const std::uint32_t each : alternatives(choice)) {
    if (!leads_to(each, choice)) {
      result.first = either(result.first, range_(each), bits, focus_);
      result.alignment = std::min(result.alignment, alignments_[each]);
      continue;
    }
    std::vector<std::uint32_t> open;
    const auto by = step(each, choice, open);
    if (!by) return std::nullopt;
    result.least = is_first ? by->least : std::min(result.least, by->least);
    result.most = is_first ? by->most : std::max(result.most, by->most);
    result.back.push_back(each);
    is_first = false;
  }
  if (is_first || !result.first.reached) return std::nullopt;
  return result;
}

// Goes on until it equals a number, by a step that hits it.
std::optional<Range> Loops::until_equal(std::uint32_t choice, const Induction& induction) const {
  const unsigned bits = expressions_[choice].bits;
  const Range first = induction.first;
  const Range::Number step = induction.least;
  if (step != induction.most || step == 0 || !is_plain(first) || induction.back.size() != 1) return std::nullopt;
  std::uint32_t back = induction.back[0];
  while (expressions_[back].op == ExpressionOp::when) back = expressions_[back].a;
  const Expression& last = expressions_[back];
  const auto relation = static_cast<ExpressionRelation>(last.value & ~kSignedRelation);
  if (last.op != ExpressionOp::where || relation != ExpressionRelation::not_equal) return std::nullopt;
  const Range& end = range_(last.b);
  if (!end.is_number()) return std::nullopt;
  // Both as numbers between which the step leads without going around.
  for (const bool is_signed : {true, false}) {
    const Range from = is_signed ? first.as_signed(bits) : first.as_unsigned(bits),
                to = is_signed ? end.as_signed(bits) : end.as_unsigned(bits);
    const Range::Number stops = to.lo - step;  // what it is when it is about to be that number
    const auto size = static_cast<std::uint64_t>(step < 0 ? -step : step);
    const auto aligned = static_cast<unsigned>(std::countr_zero(size));
    const bool is_power = std::has_single_bit(size);
    const bool hits = (first.lo == first.hi && (to.lo - from.lo) % step == 0) ||
                      (is_power && induction.alignment >= aligned && alignments_[last.b] >= aligned);
    if (!hits) continue;
    if (step > 0 && from.hi <= stops) return Range::of(from.lo, stops, bits);
    if (step < 0 && from.lo >= stops) return Range::of(stops, from.hi, bits);
  }
  return std::nullopt;
}

std::vector<std::pair<std::uint32_t, Range>> Loops::bounded() const {
  std::map<std::int64_t, std::vector<std::pair<std::uint32_t, Induction>>> of_loop;
  for (const std::uint32_t at : used_)
    if (expressions_[at].op == ExpressionOp::either && expressions_[at].value != 0)
      if (auto found = induction(at)) of_loop[expressions_[at].value].emplace_back(at, std::move(*found));
  std::vector<std::pair<std::uint32_t, Range>> result;
  for (const auto& [loop, choices] : of_loop) {
    std::optional<Range::Number> repeats;
    const auto at_most = [&](Range::Number count) { repeats = repeats ? std::min(*repeats, count) : count; };
    for (const auto& [choice, each] : choices) {
      const unsigned bits = expressions_[choice].bits;
      if (each.least != each.most || each.least == 0) continue;
      const Range::Number step = each.least < 0 ? -each.least : each.least;
      Range range = range_(choice);
      if (const auto known = until_equal(choice, each)) {
        result.emplace_back(choice, *known);
        range = *known;
      }
      const Range::Number room = range.hi - range.lo;
      if (is_plain(range) && room + step < Range::Number{1} << bits) at_most(room / step);
    }
    if (!repeats) continue;
    for (const auto& [choice, each] : choices) {
      const unsigned bits = expressions_[choice].bits;
      constexpr Range::Number kMost = Range::Number{1} << 62;
      if (*repeats != 0 && (each.least < -kMost / *repeats || each.most > kMost / *repeats)) continue;
      Range range = each.first;
      if (range.is_full(bits)) continue;
      range = Range::of(range.lo + std::min<Range::Number>(0, each.least * *repeats),
                        range.hi + std::max<Range::Number>(0, each.most * *repeats), bits);
      if (range.is_full(bits)) continue;
      range.base = each.first.base;
      range.indexed = each.first.indexed;
      result.emplace_back(choice, range);
    }
  }
  return result;
}

}  // namespace nimble::analyzer
