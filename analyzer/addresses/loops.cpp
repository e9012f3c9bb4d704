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

void Loops::find_users() {
  users_begin_.assign(expressions_.size() + 1, 0);
  const auto each_operand = [&](const auto& act) {
    for (const std::uint32_t at : used_)
      for (unsigned i = 0; i < operands_of(expressions_[at].op); ++i)
        act(i == 0 ? expressions_[at].a : expressions_[at].b, at);
  };
  each_operand([&](std::uint32_t operand, std::uint32_t) { ++users_begin_[operand + 1]; });
  for (std::size_t i = 1; i < users_begin_.size(); ++i) users_begin_[i] += users_begin_[i - 1];
  users_.resize(users_begin_.back());
  std::vector<std::uint32_t> next(users_begin_.begin(), users_begin_.end() - 1);
  each_operand([&](std::uint32_t operand, std::uint32_t at) { users_[next[operand]++] = at; });
}

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

// Whether it is the same number wherever it stands; of two that were loaded, or are not known, one expression is made.
bool Loops::is_one_value(std::uint32_t expression) const {
  std::vector<bool> seen(expressions_.size());
  std::vector<std::uint32_t> open{expression};
  seen[expression] = true;
  while (!open.empty()) {
    const Expression& each = expressions_[open.back()];
    open.pop_back();
    if (each.op == ExpressionOp::up_to || each.op == ExpressionOp::loaded || each.op == ExpressionOp::unknown)
      return false;
    for (unsigned i = 0; i < operands_of(each.op); ++i) {
      const std::uint32_t operand = i == 0 ? each.a : each.b;
      if (!seen[operand]) open.push_back(operand);
      seen[operand] = true;
    }
  }
  return true;
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
          if (value == whole && expressions_[mask].op == constant && expressions_[mask].value >= 0 &&
              is_one_value(whole))
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

// Those of one choice, in their order.
std::vector<std::uint32_t> Loops::alternatives(std::uint32_t choice) const {
  std::vector<std::uint32_t> all;
  for (std::uint32_t at = choice;; at = expressions_[at].b) {
    const Expression& each = expressions_[at];
    all.push_back(each.a);
    const Expression& rest = expressions_[each.b];
    if (rest.op == ExpressionOp::either && rest.value == kRestOfChoice && all.size() <= kMostOpen) continue;
    all.push_back(each.b);
    return all;
  }
}

std::vector<bool> Loops::computed_from(std::uint32_t choice) const {
  std::vector<bool> result(expressions_.size());
  std::vector<std::uint32_t> open{choice};
  result[choice] = true;
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    for (std::uint32_t i = users_begin_[at]; i < users_begin_[at + 1]; ++i) {
      if (result[users_[i]]) continue;
      result[users_[i]] = true;
      open.push_back(users_[i]);
    }
  }
  return result;
}

// By how much it is more than the choice that it is computed from. Nothing where it is not that and a sum.
std::optional<Loops::Step> Loops::step(std::uint32_t from, Way& way) const {
  if (from == way.choice) return Step{};
  if (way.open.size() > kMostOpen || std::ranges::find(way.open, from) != way.open.end()) return std::nullopt;
  if (const auto known = way.known.find(from); known != way.known.end()) return known->second;
  way.open.push_back(from);
  const auto result = find_step(from, way);
  way.open.pop_back();
  way.known.emplace(from, result);
  return result;
}

std::optional<Loops::Step> Loops::find_step(std::uint32_t from, Way& way) const {
  const Expression& each = expressions_[from];
  if (each.op == ExpressionOp::where || each.op == ExpressionOp::when) return step(each.a, way);
  if (each.op == ExpressionOp::either) {
    const auto a = step(each.a, way), b = step(each.b, way);
    if (a && b) return Step{std::min(a->least, b->least), std::max(a->most, b->most)};
  }
  if (each.op == ExpressionOp::add && way.leads[each.a] != way.leads[each.b]) {
    const auto rest = step(way.leads[each.a] ? each.a : each.b, way);
    const Range& added = range_(way.leads[each.a] ? each.b : each.a);
    if (rest && is_plain(added) && !added.is_full(each.bits))
      return Step{rest->least + added.lo, rest->most + added.hi};
  }
  return std::nullopt;
}

std::optional<Loops::Induction> Loops::induction(std::uint32_t choice) const {
  Induction result;
  result.alignment = kMostAlignment;
  bool is_first = true;
  const unsigned bits = expressions_[choice].bits;
  Way way{choice, computed_from(choice), {}, {}};
  for (const std::uint32_t each : alternatives(choice)) {
    result.goes_on.push_back(way.leads[each]);
    if (!way.leads[each]) {
      result.first = either(result.first, range_(each), bits, focus_);
      result.alignment = std::min(result.alignment, alignments_[each]);
      continue;
    }
    const auto by = step(each, way);
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

// Whether it begins anew wherever the counter does. Else it goes on while the counter counts again.
bool Loops::begins_with(const Induction& counter, const Induction& other) {
  if (counter.goes_on.size() != other.goes_on.size()) return false;
  for (std::size_t i = 0; i < other.goes_on.size(); ++i)
    if (other.goes_on[i] && !counter.goes_on[i]) return false;
  return true;
}

std::vector<std::pair<std::uint32_t, Range>> Loops::bounded() const {
  std::map<std::int64_t, std::vector<std::pair<std::uint32_t, Induction>>> of_loop;
  for (const std::uint32_t at : used_)
    if (expressions_[at].op == ExpressionOp::either && expressions_[at].value > 0)
      if (auto found = induction(at)) of_loop[expressions_[at].value].emplace_back(at, std::move(*found));
  std::vector<std::pair<std::uint32_t, Range>> result;
  for (const auto& [loop, choices] : of_loop) {
    std::vector<std::pair<const Induction*, Range::Number>> counters;  // and how often they repeat at most
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
      if (is_plain(range) && room + step < Range::Number{1} << bits) counters.emplace_back(&each, room / step);
    }
    for (const auto& [choice, each] : choices) {
      std::optional<Range::Number> repeats;
      for (const auto& [counter, count] : counters)
        if (begins_with(*counter, each)) repeats = repeats ? std::min(*repeats, count) : count;
      if (!repeats) continue;
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
