#include "analyzer/addresses/evaluate.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "analyzer/addresses/loops.h"

namespace nimble::analyzer {
namespace {

constexpr int kThresholdRounds = 12;
constexpr int kPlainRounds = 6;  // before what still grows is widened
constexpr int kMostRounds = 64;  // after that nothing is known
constexpr int kNarrowRounds = 3;
constexpr int kLoopRounds = 4;

class Evaluation {
 public:
  Evaluation(const Expressions& expressions, std::uint32_t focus, const LaunchValues& launch, Trail& trail)
      : expressions_(expressions),
        focus_(focus),
        launch_(launch),
        trail_(trail),
        ranges_(expressions.size()),
        state_(expressions.size()) {}

  // False if it does not come to an end.
  bool run(std::span<const AddressUse> uses, std::span<const std::uint32_t> counters) {
    for (const AddressUse& use : uses) find_used(use.address);
    find_counters(counters);
    return run();
  }
  bool run(std::uint32_t expression) {
    find_used(expression);
    return run();
  }

  const Range& operator[](std::uint32_t at) const { return ranges_[at]; }

  // Adds what of the parameters the value, which was run, may be made of.
  void find_made_of(std::uint32_t value, WordsTaken& taken) const {
    using enum ExpressionOp;
    std::vector<std::uint8_t> seen(expressions_.size());
    std::vector<std::uint32_t> open{value};
    seen[value] = 1;
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      const Expression& each = expressions_[at];
      open.pop_back();
      if (!ranges_[at].reached || makes_number(each)) continue;  // it has no value, or not that of an address
      taken.anything |= each.op == unknown;
      if (each.op == param) taken.add(each.value, each.value + each.a);
      if (is_lookup(each.op)) {
        const auto lookup = lookup_of(each);
        taken.anything |= !lookup;
        if (lookup) taken.add(lookup->first, std::int64_t{lookup->last} + lookup->bytes);
        continue;
      }
      const bool has_condition = each.op == when || each.op == where;
      for (unsigned i = 0; i < (has_condition ? 1 : operands_of(each.op)); ++i) {
        const std::uint32_t operand = i == 0 ? each.a : each.b;
        if (!std::exchange(seen[operand], 1)) open.push_back(operand);
      }
    }
  }

 private:
  // Whether its value is no address, as the flow that proves accesses has it (sass_flow/transfer_functions.h):
  // products, and what is shifted, but for an upper half that is put in its place.
  bool makes_number(const Expression& each) const {
    using enum ExpressionOp;
    constexpr std::int64_t kHalf = 32;
    switch (each.op) {
      case multiply:
      case multiply_high:
      case multiply_high_signed:
      case divide:
      case remainder:
      case remainder_signed:
      case shift_right:
      case shift_right_signed:
        return true;
      case shift_left:
        return expressions_[each.b].op == constant && expressions_[each.b].value < kHalf;
      default:
        return false;
    }
  }

  bool run() {
    int round = 0;
    bool changed = true;
    for (; changed && round < kMostRounds; ++round) {
      changed = false;
      for (const std::uint32_t at : used_) changed |= grow(at, round);
    }
    if (changed) return false;
    if (!has_circle_) return true;
    narrow();
    // What loops within loops bound bounds others.
    for (round = 0; round < kLoopRounds; ++round) {
      const Loops loops(expressions_, used_, focus_, [this](std::uint32_t at) -> const Range& { return ranges_[at]; });
      bool any = false;
      for (const auto& [at, range] : loops.bounded()) {
        const Range& known = ranges_[at];
        if (known.reached && known.base == range.base && known.hi - known.lo <= range.hi - range.lo) continue;
        bounds_[at] = range;
        any = true;
      }
      if (!any) break;
      narrow();
    }
    return true;
  }

  // All that it is computed from, operands before what is made of them as far as that goes.
  void find_used(std::uint32_t first) {
    if (std::exchange(state_[first], kOpen) != kNotSeen) return;
    std::vector<std::pair<std::uint32_t, unsigned>> open{{first, 0}};
    while (!open.empty()) {
      auto& [at, next] = open.back();
      const Expression& each = expressions_[at];
      if (next == operands_of(each.op)) {
        state_[at] = kDone;
        used_.push_back(at);
        open.pop_back();
        continue;
      }
      const std::uint32_t operand = next++ == 0 ? each.a : each.b;
      has_circle_ |= state_[operand] == kOpen;
      if (state_[operand] != kNotSeen) continue;
      state_[operand] = kOpen;
      open.emplace_back(operand, 0);
    }
  }

  // Those of the loops that are in use, and of loops that they lead to.
  void find_counters(std::span<const std::uint32_t> counters) {
    std::set<std::int64_t> loops;
    for (std::size_t seen = 0; seen < used_.size();) {
      for (; seen < used_.size(); ++seen)
        if (expressions_[used_[seen]].op == ExpressionOp::either && expressions_[used_[seen]].value > 0)
          loops.insert(expressions_[used_[seen]].value);
      for (const std::uint32_t counter : counters)
        if (state_[counter] == kNotSeen && loops.contains(expressions_[counter].value)) find_used(counter);
    }
  }

  // What is known goes on being true where it is made of what is known better.
  void narrow() {
    for (int round = 0; round < kNarrowRounds; ++round) {
      for (const std::uint32_t at : used_) {
        ranges_[at] = value(at);
        const auto bound = bounds_.find(at);
        if (bound == bounds_.end() || !ranges_[at].reached) continue;
        if (ranges_[at].base != bound->second.base ||
            ranges_[at].hi - ranges_[at].lo > bound->second.hi - bound->second.lo)
          ranges_[at] = bound->second;
      }
    }
  }

  bool grow(std::uint32_t at, int round) {
    const Expression& each = expressions_[at];
    Range now = value(at);
    Range& known = ranges_[at];
    if (each.op == ExpressionOp::either && known.reached) {
      now = either(known, now, each.bits, focus_);
      if (now == known) return false;
      if (round >= kPlainRounds) now = widened(known, now, each.bits, round);
    }
    if (now == known) return false;
    known = now;
    return true;
  }

  // To the next of the numbers that conditions compare with, then far away, then to all there is: in the direction in
  // which it grows (B. Blanchet et al., A Static Analyzer for Large Safety-Critical Software, 2003).
  Range widened(const Range& known, const Range& now, unsigned bits, int round) const {
    const Range ends = Range::full(bits);
    if (round >= kPlainRounds + kThresholdRounds) return ends;
    const Range::Number far = Range::Number{1} << (bits - 2);
    std::set<Range::Number> thresholds{-far, far};
    for (const std::uint32_t at : used_) {
      const Expression& each = expressions_[at];
      if (each.op != ExpressionOp::where || expressions_[each.b].bits != bits || !ranges_[each.b].reached) continue;
      for (const Range::Number number : {ranges_[each.b].lo, ranges_[each.b].hi})
        thresholds.insert({number - 1, number, number + 1});
    }
    Range result = now;
    if (now.lo < known.lo) {
      const auto next = thresholds.upper_bound(now.lo);
      if (next == thresholds.begin()) return ends;
      result.lo = *std::prev(next);
    }
    if (now.hi > known.hi) {
      const auto next = thresholds.lower_bound(now.hi);
      if (next == thresholds.end()) return ends;
      result.hi = *next;
    }
    return result.hi - result.lo >= ends.hi - ends.lo ? ends : result;
  }

  Range value(std::uint32_t at) const {
    using enum ExpressionOp;
    const Expression& each = expressions_[at];
    switch (each.op) {
      case constant:
        return Range::number(each.value, each.bits);
      case param:
        return parameter(each);
      case param_at:
      case number_at:
        return parameter_at(each);
      case ExpressionOp::launch:
        return of_launch(static_cast<ExpressionLaunch>(each.value), each.bits);
      case up_to:
        return Range::of(0, each.value, each.bits);
      case loaded:
        return Range::index();
      case unknown:
        return Range::full(each.bits);
      case ExpressionOp::either:
        return analyzer::either(ranges_[each.a], ranges_[each.b], each.bits, focus_);
      default:
        return computed(each.op, each.value, ranges_[each.a],
                        operands_of(each.op) > 1 ? ranges_[each.b] : Range::number(0, each.bits), each.bits);
    }
  }

  Range parameter(const Expression& each) const {
    const auto first = static_cast<std::uint64_t>(each.value), bytes = std::uint64_t{each.a};
    if (bytes > 8 || first > launch_.params.size() || bytes > launch_.params.size() - first)
      return Range::full(each.bits);
    trail_.rest_on(each.value, bytes);
    constexpr std::uint64_t kPointer = 8;
    auto pointer = std::ranges::lower_bound(launch_.pointers, first < kPointer ? 0 : first - kPointer + 1);
    for (; pointer != launch_.pointers.end() && *pointer < first + bytes; ++pointer) {
      if (*pointer == first && bytes == kPointer) return Range::pointer(*pointer);
      if (first < *pointer + kPointer) return Range::full(each.bits);
    }
    std::uint64_t value = 0;
    std::memcpy(&value, launch_.params.data() + first, bytes);
    return Range::number(static_cast<Range::Number>(value), each.bits);
  }

  // Where in the parameters the index leads to, if that is known.
  std::optional<Trail::Lookup> lookup_of(const Expression& each) const {
    const std::uint32_t bytes = each.op == ExpressionOp::param_at ? 8 : each.b;
    const Range& index = ranges_[each.a];
    const Range::Number first = index.lo + each.value, last = index.hi + each.value;
    const bool is_known = index.base == Range::kNoBase && !index.indexed && first >= 0 && first % bytes == 0 &&
                          last + bytes <= static_cast<Range::Number>(launch_.params.size());
    if (!is_known) return std::nullopt;
    return Trail::Lookup{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last), bytes};
  }

  Range parameter_at(const Expression& each) const {
    if (!ranges_[each.a].reached) return {};
    const std::uint32_t bytes = each.op == ExpressionOp::param_at ? 8 : each.b;
    const Range anything =
        bytes < each.bits / 8 ? Range::of(0, (Range::Number{1} << 8 * bytes) - 1, each.bits) : Range::full(each.bits);
    const auto lookup = lookup_of(each);
    if (!lookup) return anything;
    const auto [found, is_new] = trail_.lookups.try_emplace(*lookup);
    if (is_new) found->second = looked_up(*lookup, each.bits);
    const Trail::Found& known = found->second;
    if (!known.pointers.empty()) {
      // By the other pointers not this one's memory.
      const bool has_focus = std::ranges::binary_search(known.pointers, focus_);
      return Range::pointer(has_focus ? focus_ : known.pointers.front());
    }
    return known.numbers.reached ? known.numbers : anything;
  }

  // What the index leads to, if all of it are pointers, but for those that are null, or none is. Each lies at a
  // multiple of its size, or the GPU would not load it.
  Trail::Found looked_up(const Trail::Lookup& lookup, std::uint8_t bits) const {
    Trail::Found found;
    bool has_number = false;
    for (std::uint32_t at = lookup.first; at <= lookup.last; at += lookup.bytes) {
      const Range value = parameter({ExpressionOp::param, bits, lookup.bytes, 0, at});
      if (value.base != Range::kNoBase)
        found.pointers.push_back(at);
      else if (!value.is_number())  // a part of a pointer
        return {};
      else
        found.numbers = analyzer::either(found.numbers, value, bits, focus_), has_number |= value.lo != 0;
      if (has_number && !found.pointers.empty()) return {};
    }
    found.has_numbers = found.numbers.reached;
    return found;
  }

  Range of_launch(ExpressionLaunch which, unsigned bits) const {
    const auto at = static_cast<unsigned>(which);
    const std::uint32_t threads = launch_.block[at % 3], blocks = launch_.grid[at % 3];
    if (at >= static_cast<unsigned>(ExpressionLaunch::count) || threads == 0 || blocks == 0) return Range::full(bits);
    switch (at / 3) {
      case 0:
        return Range::of(0, Range::Number{threads} - 1, bits);
      case 1:
        return Range::of(0, Range::Number{blocks} - 1, bits);
      default:
        return Range::number(at / 3 == 2 ? threads : blocks, bits);
    }
  }

  const Expressions& expressions_;
  const std::uint32_t focus_;
  const LaunchValues& launch_;
  Trail& trail_;
  std::vector<Range> ranges_;
  enum State : std::uint8_t { kNotSeen, kOpen, kDone };  // kOpen: its operands are being looked at
  std::vector<State> state_;
  std::vector<std::uint32_t> used_;
  std::map<std::uint32_t, Range> bounds_;  // of choices, by how often loops repeat
  bool has_circle_ = false;
};

}  // namespace

void WordsTaken::add(std::int64_t first, std::int64_t last) {
  spans.emplace(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last));
}

bool WordsTaken::names(std::uint32_t word) const {
  constexpr std::uint32_t kWord = 8;
  return std::ranges::any_of(spans, [&](const auto& span) { return span.first < word + kWord && word < span.second; });
}

void Trail::rest_on(std::int64_t at, std::uint64_t bytes) {
  const auto last = (static_cast<std::uint64_t>(at) + bytes + 3) / 4;
  if (pieces_.size() < last) pieces_.resize(last);
  for (auto piece = static_cast<std::uint64_t>(at) / 4; piece < last; ++piece) pieces_[piece] = true;
}

bool Trail::rests_on(std::uint32_t at, std::uint32_t bytes) const {
  for (std::uint32_t piece = at / 4; piece < pieces_.size() && piece < (at + bytes + 3) / 4; ++piece)
    if (pieces_[piece]) return true;
  return false;
}

std::set<NumberAt> Trail::taken() const {
  std::set<NumberAt> numbers;
  for (const auto& [lookup, found] : lookups) {
    if (!found.has_numbers) continue;
    for (std::uint32_t at = lookup.first; at <= lookup.last; at += lookup.bytes)
      if (!std::ranges::binary_search(found.pointers, at)) numbers.insert({at, lookup.bytes});
  }
  return numbers;
}

namespace {

// From the pointer in that word; Range::kNoBase: from none.
std::optional<std::vector<Reach>> reach_from(const AddressExtents& extents, const AddressGroup& group,
                                             std::uint32_t pointer, const LaunchValues& launch, Trail* trail) {
  if (!group.complete) return std::nullopt;
  Trail own;
  Evaluation evaluation(extents.expressions, pointer, launch, trail != nullptr ? *trail : own);
  if (!evaluation.run(group.uses, extents.counters)) return std::nullopt;
  constexpr Range::Number kFarthest = Range::Number{1} << 62;
  std::vector<Reach> result;
  for (const AddressUse& use : group.uses) {
    const Range& range = evaluation[use.address];
    if (!range.reached) continue;
    const bool is_known = pointer == Range::kNoBase ? range.base == Range::kNoBase
                                                    : std::ranges::find(group.at, range.base) != group.at.end();
    if (!is_known) return std::nullopt;
    // An offset this large may lead to another pointer's memory.
    if (use.bytes == 0 || range.lo < -kFarthest || range.hi > kFarthest) return std::nullopt;
    if (range.base != pointer) continue;
    result.push_back(
        {static_cast<std::int64_t>(range.lo), static_cast<std::int64_t>(range.hi) + use.bytes, range.indexed});
  }
  return result;
}

}  // namespace

std::optional<std::vector<Reach>> reach(const AddressExtents& extents, const AddressGroup& group, std::uint32_t pointer,
                                        const LaunchValues& launch, Trail* trail) {
  return reach_from(extents, group, pointer, launch, trail);
}

std::optional<std::vector<Reach>> reach_without_pointer(const AddressExtents& extents, const AddressGroup& group,
                                                        const LaunchValues& launch, Trail* trail) {
  return reach_from(extents, group, Range::kNoBase, launch, trail);
}

WordsTaken words_taken(const AddressExtents& extents, const AddressGroup& group, std::uint32_t focus,
                       const LaunchValues& launch, Trail* trail) {
  WordsTaken taken;
  Trail own;
  Evaluation evaluation(extents.expressions, focus, launch, trail != nullptr ? *trail : own);
  taken.anything = !group.complete || !evaluation.run(group.uses, extents.counters);
  if (taken.anything) return taken;
  for (const AddressUse& use : group.uses) evaluation.find_made_of(use.address, taken);
  return taken;
}

bool may_happen(const AddressExtents& extents, std::uint32_t expression, const LaunchValues& launch, Trail* trail) {
  Trail own;
  Evaluation evaluation(extents.expressions, Range::kNoBase, launch, trail != nullptr ? *trail : own);
  return !evaluation.run(expression) || evaluation[expression].reached;
}

}  // namespace nimble::analyzer
