#include "analyzer/kernel_code/sass_expressions/occurrence.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace nimble::code::sass {
namespace {

constexpr int kMostDepth = 8;               // of predicates that are made of predicates
constexpr std::size_t kMostCompared = 256;  // expressions in one comparison
constexpr std::size_t kMostMade = 12000;    // in the list: after that everything may be
constexpr auto kFirstSize = static_cast<std::int64_t>(ExpressionLaunch::threads_x);
constexpr unsigned kBranch = 0x947;
constexpr unsigned kAtFirstPredicate = 81, kAtSecondPredicate = 84, kTrue = 7;

struct Input {
  unsigned at, negated;
};
constexpr Input kInputs[] = {{87, 90}, {77, 80}, {68, 71}};

}  // namespace

Occurrence::Occurrence(const ControlFlow& flow, const Values& values, Addresses& addresses)
    : flow_(flow),
      values_(values),
      addresses_(addresses),
      list_(addresses.list()),
      always_(list_.number(1, 32)),
      never_(list_.make(ExpressionOp::when, always_,
                        list_.make(ExpressionOp::where, list_.number(0, 32), always_,
                                   static_cast<std::int64_t>(ExpressionRelation::equal)))),
      to_(flow.blocks.size()),
      blocks_(flow.blocks.size(), always_) {
  find_blocks();
}

// ---- blocks ----

// A function's blocks from its first on, each after those that lead to it but for what goes back.
std::vector<std::uint32_t> Occurrence::in_order(std::uint32_t entry) const {
  std::vector<std::uint32_t> order;
  std::vector<std::uint8_t> seen(flow_.blocks.size());
  std::vector<std::pair<std::uint32_t, std::size_t>> open{{entry, 0}};
  seen[entry] = 1;
  while (!open.empty()) {
    auto& [block, next] = open.back();
    if (next == to_[block].size()) {
      order.push_back(block);
      open.pop_back();
      continue;
    }
    const std::uint32_t to = to_[block][next++];
    if (std::exchange(seen[to], 1) == 0) open.emplace_back(to, 0);
  }
  std::ranges::reverse(order);
  return order;
}

// Control gets to a block for the first time from one that it got to before: so what leads back to the block from where
// every way leads through it counts for nothing.
void Occurrence::find_blocks() {
  for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block)
    for (const Block::From& from : flow_.blocks[block].from) to_[from.block].push_back(block);
  const Dominators& dominators = addresses_.conditions().dominators();
  std::vector<std::uint8_t> is_known(flow_.blocks.size());
  for (std::uint32_t function = 0; function < flow_.functions.size(); ++function) {
    for (const std::uint32_t block : in_order(flow_.functions[function].entry)) {
      const Block& here = flow_.blocks[block];
      if (here.function != function || is_known[block] != 0) continue;
      std::vector<ExpressionId> ways;
      bool is_understood = list_.size() < kMostMade;
      if (block == flow_.functions[function].entry) {
        if (function == 0) ways.push_back(always_);
        for (const std::uint32_t caller : values_.callers(function)) {
          is_understood &= is_known[caller] != 0;
          ways.push_back(blocks_[caller]);
        }
      }
      for (const Block::From& from : here.from) {
        if (dominators.dominates(block, from.block)) continue;
        is_understood &= is_known[from.block] != 0;
        if (is_understood) ways.push_back(from.after_call ? blocks_[from.block] : along(from.block, block, 0));
      }
      blocks_[block] = is_understood && !ways.empty() ? any(std::move(ways)) : always_;
      is_known[block] = 1;
    }
  }
}

ExpressionId Occurrence::along(std::uint32_t from, std::uint32_t to, int depth) {
  const Fact fact = addresses_.conditions().branch(from, to);
  if (fact.predicate != kNoValue) return both(blocks_[from], of(fact, depth));
  return both(blocks_[from], by_two(from, to, depth));
}

// By a branch that has a further condition: it is taken where both hold.
ExpressionId Occurrence::by_two(std::uint32_t from, std::uint32_t to, int depth) {
  const auto [at_other, negated] = kInputs[0];
  const std::uint32_t last = flow_.blocks[from].end - 1;
  const Instruction& instruction = flow_.instructions[last];
  if (instruction.opcode != kBranch || !instruction.target || flow_.word(last).bits(at_other, 3) == kTrue)
    return always_;
  const auto target = static_cast<std::uint32_t>(last + *instruction.target / 16);
  if (target == last + 1) return always_;
  const bool is_taken = flow_.blocks[to].begin == target;
  const Fact& guard = values_.guard(last);
  const ExpressionId other = input(last, at_other, negated, is_taken, depth);
  if (guard.predicate == kNoValue) return other;
  const ExpressionId first = of({guard.predicate, guard.is_true == is_taken}, depth);
  return is_taken ? both(first, other) : any({first, other});
}

ExpressionId Occurrence::of_block(std::uint32_t at) const { return blocks_[addresses_.conditions().block_of(at)]; }

ExpressionId Occurrence::of(std::uint32_t at) {
  const Fact& guard = values_.guard(at);
  const ExpressionId id = guard.predicate == kNoValue ? of_block(at) : both(of_block(at), of(guard));
  // It reads nothing, and stores zeros, where a further predicate does not hold: PTX's ignore-src, or a size of 0.
  const auto [at_other, negated] = kInputs[0];
  const bool copies = flow_.instructions[at].what == Class::async_copy;
  return copies ? both(id, input(at, at_other, negated, true, 0)) : id;
}

ExpressionId Occurrence::of(ValueId choice, const Addresses::Source& source, int depth) {
  if (source.fact) return of(*source.fact, depth);
  if (source.from == kNoBlock) return always_;
  return along(source.from, addresses_.conditions().block_of(values_.all()[choice].instruction), depth);
}

// ---- predicates ----

ExpressionId Occurrence::of(const Fact& any, int depth) {
  const Fact fact = values_.plain(any);
  const std::uint64_t key = std::uint64_t{fact.predicate} << 1 | (fact.is_true ? 1 : 0);
  if (const auto found = predicates_.find(key); found != predicates_.end()) return found->second;
  if (depth > kMostDepth || list_.size() > kMostMade) return always_;
  predicates_[key] = always_;  // for what leads back here
  return predicates_[key] = find(fact, depth);
}

ExpressionId Occurrence::find(const Fact& fact, int depth) {
  const Value& value = values_.all()[fact.predicate];
  if (value.kind == Value::Kind::initial) return always_;
  if (value.kind == Value::Kind::choice) {
    std::vector<ExpressionId> ways;
    for (const Addresses::Source& source : addresses_.sources(fact.predicate))
      ways.push_back(both(of(fact.predicate, source, depth + 1), of({source.value, fact.is_true}, depth + 1)));
    return ways.empty() ? always_ : any(std::move(ways));
  }
  const std::uint32_t at = value.instruction;
  const Word word = flow_.word(at);
  const std::string_view name = flow_.instructions[at].name;
  const unsigned result = addresses_.conditions().result_at(at, fact.predicate);
  if (result != kAtFirstPredicate && result != kAtSecondPredicate) return always_;
  if (name == "PLOP3" || name == "UPLOP3") {
    const auto table = static_cast<unsigned>(result == kAtFirstPredicate ? word.bits(64, 3) | word.bits(72, 5) << 3
                                                                         : word.bits(16, 8));
    return by_table(fact, table, 0, at, depth);
  }
  if (name != "ISETP" && name != "UISETP") return always_;
  // It, or its opposite, joined with a further predicate.
  const bool holds = result == kAtFirstPredicate;
  enum { kAnd, kOr };
  const auto joined = static_cast<unsigned>(word.bits(74, 2));
  if (joined != kAnd && joined != kOr) return always_;
  const auto [at_other, negated] = kInputs[0];
  const ExpressionId here = compared(at, fact.is_true == holds);
  const ExpressionId other = input(at, at_other, negated, fact.is_true, depth);
  return (joined == kAnd) == fact.is_true ? both(here, other) : any({here, other});
}

// That a predicate which an instruction reads has this value there.
ExpressionId Occurrence::input(std::uint32_t at, unsigned bit, unsigned negated, bool is_true, int depth) {
  const Word word = flow_.word(at);
  const bool holds = is_true != (word.bit(negated) != 0);
  if (word.bits(bit, 3) == kTrue) return holds ? always_ : never_;
  const ValueId predicate = addresses_.conditions().predicate_at(at, bit);
  return predicate == kNoValue ? always_ : of({predicate, holds}, depth + 1);
}

// A table of outcomes, by three inputs, from one of these on.
ExpressionId Occurrence::by_table(const Fact& fact, unsigned table, unsigned from, std::uint32_t at, int depth) {
  const unsigned rows = 8u >> from, all = (1u << rows) - 1, wanted = (fact.is_true ? table : ~table) & all;
  if (wanted == 0) return never_;
  if (wanted == all) return always_;
  // The rows where the input is false come first.
  const unsigned half = rows / 2, lower = table & ((1u << half) - 1), upper = table >> half & ((1u << half) - 1);
  if (lower == upper) return by_table(fact, lower, from + 1, at, depth);
  const auto [bit, negated] = kInputs[from];
  return any({both(input(at, bit, negated, false, depth), by_table(fact, lower, from + 1, at, depth)),
              both(input(at, bit, negated, true, depth), by_table(fact, upper, from + 1, at, depth))});
}

ExpressionId Occurrence::compared(std::uint32_t at, bool holds) {
  const auto comparison = addresses_.conditions().comparison(at, holds);
  if (!comparison) return always_;
  const auto condition = addresses_.comparison(*comparison);
  return condition && is_by_launch(*condition) ? both(always_, *condition) : always_;
}

// Whether it is computed from parameters and sizes, through no loop, and from nothing that is not known. Nor from the
// numbers of threads and blocks: such conditions bound how much is done, and exclude it only where nothing is.
bool Occurrence::is_by_launch(ExpressionId id) const {
  using enum ExpressionOp;
  enum State : std::uint8_t { kOpen, kDone };
  std::unordered_map<ExpressionId, State> state{{id, kOpen}};
  std::vector<std::pair<ExpressionId, unsigned>> open{{id, 0}};
  bool any = false;
  while (!open.empty()) {
    auto& [at, next] = open.back();
    const Expression& each = list_[at];
    const bool is_number = each.op == ExpressionOp::launch && each.value < kFirstSize;
    if (each.op == unknown || each.op == loaded || is_number || state.size() > kMostCompared) return false;
    any |= each.op == param || each.op == ExpressionOp::launch;
    if (next == operands_of(each.op)) {
      state[at] = kDone;
      open.pop_back();
      continue;
    }
    const ExpressionId operand = next++ == 0 ? each.a : each.b;
    const auto [found, is_new] = state.emplace(operand, kOpen);
    if (!is_new && found->second == kOpen) return false;
    if (is_new) open.emplace_back(operand, 0);
  }
  return any;
}

// ---- together ----

ExpressionId Occurrence::both(ExpressionId a, ExpressionId b) {
  if (a == never_ || b == never_) return never_;
  if (b == always_ || implies(a, b)) return a;
  if (a == always_ && list_[b].op != ExpressionOp::where) return b;
  return list_.make(ExpressionOp::when, a, b);
}

// Whether the one needs the other, as far as that is plain to see.
bool Occurrence::implies(ExpressionId a, ExpressionId b) const {
  constexpr int kMost = 64;
  for (int i = 0; i < kMost; ++i) {
    if (a == b) return true;
    if (list_[a].op != ExpressionOp::when) return false;
    if (list_[a].b == b) return true;
    a = list_[a].a;
  }
  return false;
}

// Two conditions, one of which always holds.
bool Occurrence::are_opposite(ExpressionId a, ExpressionId b) const {
  const auto condition = [&](ExpressionId id) {
    const Expression& each = list_[id];
    return each.op == ExpressionOp::when && each.a == always_ ? list_[each.b] : each;
  };
  const Expression one = condition(a), other = condition(b);
  if (one.op != ExpressionOp::where || other.op != ExpressionOp::where || one.a != other.a || one.b != other.b)
    return false;
  using enum ExpressionRelation;
  constexpr ExpressionRelation kOpposites[] = {at_least, greater, at_most, less, not_equal, equal};
  const std::int64_t sign = one.value & kSignedRelation;
  return other.value ==
         (static_cast<std::int64_t>(kOpposites[static_cast<unsigned>(one.value & ~kSignedRelation)]) | sign);
}

ExpressionId Occurrence::any(std::vector<ExpressionId> all) {
  std::erase(all, never_);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < all.size() && !changed; ++i) {
      for (std::size_t j = 0; j < all.size() && !changed; ++j) {
        if (i == j) continue;
        const Expression &one = list_[all[i]], &other = list_[all[j]];
        const bool is_split = one.op == ExpressionOp::when && other.op == ExpressionOp::when && one.a == other.a &&
                              are_opposite(one.b, other.b);
        if (is_split) all[j] = one.a;
        if (!is_split && !implies(all[i], all[j])) continue;
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        changed = true;
      }
    }
  }
  if (all.empty()) return never_;
  if (std::ranges::find(all, always_) != all.end()) return always_;
  if (all.size() == 1) return all.front();
  const ExpressionId id = list_.choice(32, 0);
  list_.fill(id, all);
  return id;
}

// Whether a comparison tells one kind of launch from another. Which of two parameters is greater bounds how much is
// done: where that excludes something, it is since nothing is left to do.
bool Occurrence::tells_kinds(const Expression& comparison) const {
  const auto relation = static_cast<ExpressionRelation>(comparison.value & ~kSignedRelation);
  if (relation == ExpressionRelation::equal || relation == ExpressionRelation::not_equal) return true;
  std::unordered_set<ExpressionId> seen;
  std::vector<ExpressionId> open{comparison.a, comparison.b};
  while (!open.empty()) {
    const ExpressionId at = open.back();
    open.pop_back();
    const Expression& each = list_[at];
    if (each.op == ExpressionOp::param) return false;
    if (!seen.insert(at).second) continue;
    if (operands_of(each.op) > 0) open.push_back(each.a);
    if (operands_of(each.op) > 1) open.push_back(each.b);
  }
  return true;
}

// As if no comparison that tells kinds of launches needed to hold; from below, for what leads back to itself.
bool Occurrence::can_be_excluded(ExpressionId id) const {
  std::unordered_map<ExpressionId, bool> happens{{id, false}};
  std::vector<ExpressionId> order{id};
  const auto is_joined = [](const Expression& each) {
    return each.op == ExpressionOp::when || each.op == ExpressionOp::either;
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Expression& each = list_[order[i]];
    if (!is_joined(each)) continue;
    for (const ExpressionId operand : {each.a, each.b})
      if (happens.emplace(operand, false).second) order.push_back(operand);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = order.size(); i-- > 0;) {
      const Expression& each = list_[order[i]];
      bool& known = happens[order[i]];
      const bool now = each.op == ExpressionOp::when     ? happens[each.a] && happens[each.b]
                       : each.op == ExpressionOp::either ? happens[each.a] || happens[each.b]
                                                         : each.op != ExpressionOp::where || !tells_kinds(each);
      changed |= now != known;
      known = now;
    }
  }
  return !happens[id];
}

}  // namespace nimble::code::sass
