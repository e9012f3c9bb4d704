// What comparisons make sure of, put beside a value of 32 bits where it is used.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {

ExpressionId Addresses::narrowed(std::uint32_t at, ValueId value, ExpressionId id, int depth) {
  return narrowed(known_at(at), value, id, depth);
}

ExpressionId Addresses::narrowed(std::span<const Comparison> comparisons, ValueId value, ExpressionId id, int depth) {
  using enum ExpressionRelation;
  if (list_[id].op == ExpressionOp::constant || depth > kMostDepth) return id;
  const ExpressionId before = id;
  for (const Comparison& each : comparisons) {
    if (each.lower != Comparison::kNoInstruction) continue;
    const SourceOperands of_it = operands_of(flow_, values_, each.instruction);
    const bool is_first = of_it.a.kind == SourceOperand::Kind::registers && of_it.a.values[0] == value;
    const bool is_second = of_it.b.kind == SourceOperand::Kind::registers && of_it.b.values[0] == value;
    if (is_first == is_second || of_it.a.is_wide() || of_it.b.is_wide()) continue;
    constexpr ExpressionRelation kSwapped[] = {greater, at_least, less, at_most, equal, not_equal};
    const ExpressionRelation relation = is_first ? each.relation : kSwapped[static_cast<unsigned>(each.relation)];
    const SourceOperand& other = is_first ? of_it.b : of_it.a;
    // As it is there; what is known of it further is not needed.
    const ExpressionId than = other.kind == SourceOperand::Kind::registers ? of(other.values[0], depth + 1)
                                                                           : plain(each.instruction, other, depth + 1);
    if (list_.is_unknown(than)) continue;
    id = list_.make(ExpressionOp::where, id, than,
                    static_cast<std::int64_t>(relation) + (each.is_signed ? kSignedRelation : 0));
  }
  if (id != before || comparisons.empty()) return id;
  // What is known of a number is known of a sum with it, as where a counter is compared before it is raised.
  const auto sum = sum_with_number(value);
  if (!sum) return id;
  const ExpressionId plain = of(sum->first, depth + 1);
  const ExpressionId known = narrowed(comparisons, sum->first, plain, depth + 1);
  return known == plain ? id : list_.add(known, list_.number(sum->second, 32));
}

// Another value to which a number is added, and that number.
std::optional<std::pair<ValueId, std::int32_t>> Addresses::sum_with_number(ValueId value) const {
  std::uint32_t at = 0;
  unsigned index = 0;
  if (!is_written_by(value, at, index) || flow_.relocated.contains(at)) return std::nullopt;
  const std::string_view name = flow_.instructions[at].name;
  constexpr unsigned kExtended = 74;  // .X: with a carry
  const bool has_three = name == "IADD3" || name == "UIADD3";
  if (!has_three && name != "VIADD" && name != "UVIADD") return std::nullopt;
  if (has_three && flow_.word(at).bit(kExtended) != 0) return std::nullopt;
  const SourceOperands from = operands_of(flow_, values_, at);
  std::optional<ValueId> found;
  std::uint32_t number = 0;
  for (const SourceOperand* each : {&from.a, &from.b, has_three ? &from.c : nullptr}) {
    if (each == nullptr || each->kind == SourceOperand::Kind::zero) continue;
    if (each->negated || each->is_wide() || each->kind == SourceOperand::Kind::constant) return std::nullopt;
    if (each->kind == SourceOperand::Kind::immediate) {
      number += each->immediate;
    } else if (std::exchange(found, each->values[0])) {
      return std::nullopt;
    }
  }
  if (!found) return std::nullopt;
  return std::pair{*found, static_cast<std::int32_t>(number)};
}

ExpressionId Addresses::possible(std::span<const Comparison> comparisons, ExpressionId id, int depth) {
  constexpr std::size_t kMostConditions = 3;
  if (depth > kMostDepth) return id;
  std::size_t count = 0;
  for (const Comparison& each : comparisons) {
    if (count == kMostConditions) break;
    const auto condition = comparison(each, depth);
    if (!condition) continue;
    id = list_.make(ExpressionOp::when, id, *condition);
    ++count;
  }
  return id;
}

}  // namespace nimble::code::sass
