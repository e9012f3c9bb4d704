// Values that were kept in local memory in between: what a compiler has no register for.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {
namespace {

constexpr std::size_t kMostStored = 12;      // values of one word
constexpr std::size_t kMostLookedAt = 4096;  // expressions below them

}  // namespace

// All that may lie in the word that a load takes into its register of that index; nothing where that is not known, or
// may be what was there before.
std::optional<std::vector<LocalWords::Stored>> Addresses::kept(std::uint32_t at, unsigned index) const {
  if (auto stored = local_words_.reaching(at, index))
    return stored->size() > kMostStored ? std::nullopt : std::move(stored);
  const auto* const all = local_words_.loaded(at, index);
  if (all == nullptr || all->size() > kMostStored) return std::nullopt;
  const std::uint32_t block = conditions_.block_of(at);
  for (const LocalWords::Stored& each : *all) {
    if (flow_.instructions[each.instruction].guard.when != Guard::When::always) continue;
    const std::uint32_t from = conditions_.block_of(each.instruction);
    const bool is_before = from == block ? each.instruction < at : conditions_.dominators().dominates(from, block);
    if (is_before) return *all;
  }
  return std::nullopt;
}

// Any of what was stored at any time. So it must not depend on how often a loop was run: what stands there may be of an
// earlier time than what stands elsewhere, and how loops go on is told by what all is at the same time.
ExpressionId Addresses::loaded_back(std::uint32_t at, ValueId value, unsigned index, int depth) {
  const auto all = kept(at, index);
  if (!all) return list_.unknown(32);
  const ExpressionId id = narrow_[value] = list_.choice(32, 0);
  std::vector<ExpressionId> alternatives;
  for (const LocalWords::Stored& each : *all) {
    const ExpressionId one = each.value == kNoValue
                                 ? list_.number(0, 32)
                                 : narrowed(each.instruction, each.value, of(each.value, depth + 1), depth + 1);
    alternatives.push_back(possible(conditions_.at(each.instruction), one, depth + 1));
  }
  return filled_at_any_time(id, std::move(alternatives));
}

// Both halves by one load, and each time by one store.
std::optional<ExpressionId> Addresses::wide_loaded_back(std::uint32_t at, Pair pair, unsigned index, int depth) {
  const auto low = kept(at, index), high = kept(at, index + 1);
  if (!low || !high) return std::nullopt;
  const auto is_same = [](const LocalWords::Stored& a, const LocalWords::Stored& b) {
    return a.instruction == b.instruction;
  };
  if (!std::ranges::equal(*low, *high, is_same)) return joined(of(pair.low, depth + 1), of(pair.high, depth + 1));
  const ExpressionId id = wide_[std::uint64_t{pair.high} << 32 | pair.low] = list_.choice(64, 0);
  std::vector<ExpressionId> alternatives;
  for (std::size_t i = 0; i < low->size(); ++i) {
    const std::uint32_t store = (*low)[i].instruction;
    const Pair stored{(*low)[i].value, (*high)[i].value};
    const ExpressionId one = stored.low == kNoValue
                                 ? list_.number(0, 64)
                                 : wide_narrowed(known_at(store), stored, wide(stored, depth + 1), depth + 1);
    alternatives.push_back(possible(conditions_.at(store), one, depth + 1));
  }
  return filled_at_any_time(id, std::move(alternatives));
}

// Unknown where one of the alternatives leads to a loop, or back.
ExpressionId Addresses::filled_at_any_time(ExpressionId id, std::vector<ExpressionId> alternatives) {
  if (alternatives.size() == 1) alternatives.push_back(alternatives.front());
  list_.fill(id, alternatives);
  std::vector<ExpressionId> open = std::move(alternatives);
  std::unordered_set<ExpressionId> seen;
  while (!open.empty()) {
    const ExpressionId at = open.back();
    open.pop_back();
    if (!seen.insert(at).second) continue;
    const Expression& each = list_[at];
    const bool is_open =
        each.op == ExpressionOp::either && each.a == 0 && each.b == 0;  // what leads here is not told yet
    const bool is_loop = each.op == ExpressionOp::either && each.value > 0;
    if (at == id || is_open || is_loop || seen.size() > kMostLookedAt) {
      const ExpressionId unknown = list_.unknown(list_[id].bits);
      list_.fill(id, std::array{unknown, unknown});
      return unknown;
    }
    if (operands_of(each.op) > 0) open.push_back(each.a);
    const bool is_condition =
        each.op == ExpressionOp::when || each.op == ExpressionOp::where;  // that held at some time
    if (operands_of(each.op) > 1 && !is_condition) open.push_back(each.b);
  }
  return id;
}

}  // namespace nimble::code::sass
