// Division of integers, as NVIDIA's compilers write it where the divisor is not known to them: the quotient is
// estimated with a reciprocal, and corrected where the remainder is not less than the divisor.
#include <string_view>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kModifiersAt = 72, kModifierBits = 16;
constexpr std::uint64_t kToFloatUp = 0x2090, kSigned = 0x4;  // I2F.U32.RP, I2F.RP
constexpr std::uint64_t kReciprocal = 0x10;                  // MUFU.RCP
constexpr std::uint64_t kToInteger = 0x21f0;                 // F2I.FTZ.U32.TRUNC.NTZ
constexpr std::uint32_t kLess = 0xffffffe;     // is added to the reciprocal's bits: times 2^32, and a little less
constexpr unsigned kLow = 0x24, kWide = 0x25;  // kinds of IMAD
constexpr unsigned kExtended = 74;

}  // namespace

// The instruction of this name that has written the value.
std::optional<std::uint32_t> Addresses::written_by(const SourceOperand& operand, std::string_view name) const {
  std::uint32_t at = 0;
  unsigned index = 0;
  if (operand.kind != SourceOperand::Kind::registers || !is_written_by(operand.values[0], at, index)) return {};
  return flow_.instructions[at].name == name ? std::optional(at) : std::nullopt;
}

// The x of RZ - x, however that is written; null where it is something else.
const SourceOperand* Addresses::negated(std::uint32_t at, const SourceOperands& from) const {
  const std::string_view name = flow_.instructions[at].name;
  const bool is_sum = name == "IADD3" || name == "IADD" || name == "VIADD";
  const bool is_product = name == "IMAD" && (flow_.instructions[at].opcode & 0x7f) == kLow;
  if ((!is_sum && !is_product) || flow_.word(at).bit(kExtended) != 0) return nullptr;
  using Kind = SourceOperand::Kind;
  const SourceOperand* only = nullptr;
  for (const SourceOperand* const each : {&from.a, &from.b, &from.c}) {
    if (is_product && each != &from.c) continue;
    if (each == &from.c && (name == "VIADD" || name == "IADD")) continue;
    if (each->kind == Kind::zero) continue;
    if (only != nullptr || !each->negated) return nullptr;
    only = each;
  }
  if (is_product && from.a.kind != Kind::zero && from.b.kind != Kind::zero) return nullptr;
  return only;
}

// Where the operand is 2^32 divided by something, as it is computed for a division by that: the divisor.
std::optional<ExpressionId> Addresses::reciprocal_of(const SourceOperand& operand, int depth) {
  using Kind = SourceOperand::Kind;
  const auto modifiers = [&](std::uint32_t at) { return flow_.word(at).bits(kModifiersAt, kModifierBits); };
  // By one step of Newton's: f + f * (-f * divisor) / 2^32.
  const auto step = written_by(operand, "IMAD");
  if (!step || (flow_.instructions[*step].opcode & 0x7f) == kLow || (flow_.instructions[*step].opcode & 0x7f) == kWide)
    return {};
  const SourceOperands of_step = operands_of(flow_, values_, *step);
  if (flow_.word(*step).bit(73) != 0 || flow_.word(*step).bit(kExtended) != 0 || of_step.c.negated) return {};
  if (of_step.c.kind != Kind::registers || !of_step.c.is_wide()) return {};
  const ValueId estimate = of_step.c.values[1];
  if (!list_.is_number(of(of_step.c.values[0], depth + 1), 0)) return {};
  const bool a_is = of_step.a.kind == Kind::registers && of_step.a.values[0] == estimate;
  const SourceOperand& error = a_is ? of_step.b : of_step.a;
  const SourceOperand& factor = a_is ? of_step.a : of_step.b;
  if (factor.kind != Kind::registers || factor.values[0] != estimate) return {};
  const auto product = written_by(error, "IMAD");
  if (!product || (flow_.instructions[*product].opcode & 0x7f) != kLow) return {};
  const SourceOperands of_product = operands_of(flow_, values_, *product);
  if (of_product.c.kind != Kind::zero || flow_.word(*product).bit(kExtended) != 0) return {};
  // One factor is -f, the other the divisor.
  const SourceOperand* divisor = nullptr;
  for (const auto& [one, other] : {std::pair{&of_product.a, &of_product.b}, std::pair{&of_product.b, &of_product.a}}) {
    std::uint32_t at = 0;
    unsigned index = 0;
    if (one->kind != Kind::registers || !is_written_by(one->values[0], at, index)) continue;
    const SourceOperands negates = operands_of(flow_, values_, at);
    const SourceOperand* const positive = negated(at, negates);
    if (positive != nullptr && positive->kind == Kind::registers && positive->values[0] == estimate) divisor = other;
  }
  if (divisor == nullptr) return {};
  // f is the reciprocal of the divisor, made an integer.
  SourceOperand first;
  first.kind = Kind::registers;
  first.values[0] = estimate;
  const auto to_integer = written_by(first, "F2I");
  if (!to_integer || modifiers(*to_integer) != kToInteger) return {};
  std::uint32_t less = 0;
  unsigned index = 0;
  const SourceOperand scaled = operands_of(flow_, values_, *to_integer).b;
  if (scaled.kind != Kind::registers || !is_written_by(scaled.values[0], less, index)) return {};
  const std::string_view less_name = flow_.instructions[less].name;
  const SourceOperands of_less = operands_of(flow_, values_, less);
  if ((less_name != "IADD3" && less_name != "VIADD" && less_name != "IADD") || of_less.b.kind != Kind::immediate ||
      of_less.b.immediate != kLess || of_less.c.kind == Kind::registers)
    return {};
  const auto inverse = written_by(of_less.a, "MUFU");
  if (!inverse || modifiers(*inverse) != kReciprocal) return {};
  const auto to_float = written_by(operands_of(flow_, values_, *inverse).b, "I2F");
  if (!to_float || (modifiers(*to_float) & ~kSigned) != kToFloatUp) return {};
  const SourceOperand whole = operands_of(flow_, values_, *to_float).b;
  const bool is_it = whole.kind == Kind::registers && divisor->kind == Kind::registers
                         ? whole.values[0] == divisor->values[0]
                         : is_same(*to_float, whole, *product, *divisor, depth);
  if (!is_it) return {};
  return plain(*product, *divisor, depth + 1);
}

ExpressionId Addresses::bare(ExpressionId id) const {
  while (list_[id].op == ExpressionOp::where || list_[id].op == ExpressionOp::when) id = list_[id].a;
  return id;
}

// Whether the alternative of a choice is only chosen where this comparison with zero holds.
bool Addresses::is_chosen_where(ExpressionId id, ExpressionRelation relation, bool is_signed,
                                const std::function<bool(ExpressionId)>& of_what) const {
  for (; list_[id].op == ExpressionOp::when || list_[id].op == ExpressionOp::where; id = list_[id].a) {
    if (list_[id].op != ExpressionOp::when) continue;
    const Expression& condition = list_[list_[id].b];
    const std::int64_t wanted = static_cast<std::int64_t>(relation) + (is_signed ? kSignedRelation : 0);
    const bool either_sign = relation == ExpressionRelation::equal && condition.value == (wanted ^ kSignedRelation);
    if (condition.op != ExpressionOp::where || (condition.value != wanted && !either_sign)) continue;
    if (list_.is_number(condition.b, 0) && of_what(bare(condition.a))) return true;
    if (relation == ExpressionRelation::equal && list_.is_number(condition.a, 0) && of_what(bare(condition.b)))
      return true;
  }
  return false;
}

// The quotient of these numbers that this is, with their sign, and all ones where the divisor is zero.
std::optional<ExpressionId> Addresses::quotient_in(ExpressionId id, ExpressionId n, ExpressionId divisor,
                                                   int depth) const {
  using enum ExpressionRelation;
  constexpr int kMostChoices = 4;
  id = bare(id);
  const Expression& each = list_[id];
  if (each.op == ExpressionOp::divide) return id;
  if (each.op != ExpressionOp::either || each.value != 0 || depth > kMostChoices) return {};
  const auto is_divisor = [&](ExpressionId what) { return what == divisor; };
  const auto is_sign = [&](ExpressionId what) {
    const Expression& sign = list_[what];
    const auto is_of = [&](ExpressionId one, ExpressionId other) { return bare(one) == n && bare(other) == divisor; };
    return sign.op == ExpressionOp::bit_xor && (is_of(sign.a, sign.b) || is_of(sign.b, sign.a));
  };
  for (const auto& [one, other] : {std::pair{each.a, each.b}, std::pair{each.b, each.a}}) {
    const Expression& changed = list_[bare(one)];
    if (changed.op == ExpressionOp::add && list_.is_number(changed.b, -1) &&
        list_[changed.a].op == ExpressionOp::negate && bare(list_[changed.a].a) == divisor &&
        is_chosen_where(one, equal, false, is_divisor))
      return quotient_in(other, n, divisor, depth + 1);
    if (changed.op == ExpressionOp::negate && bare(changed.a) == bare(other) &&
        is_chosen_where(one, less, true, is_sign) && is_chosen_where(other, at_least, true, is_sign))
      return quotient_in(other, n, divisor, depth + 1);
  }
  return {};
}

// n - quotient * divisor: the remainder, or a little more while the quotient is still estimated.
std::optional<ExpressionId> Addresses::remainder(ExpressionId n, ExpressionId a, ExpressionId b, int depth) {
  for (const auto& [divisor, factor] : {std::pair{a, b}, std::pair{b, a}}) {
    const Expression& negative = list_[bare(factor)];
    if (negative.op != ExpressionOp::negate) continue;
    const ExpressionId bare_n = bare(n), bare_divisor = bare(divisor);
    const auto quotient = quotient_in(negative.a, bare_n, bare_divisor, depth);
    if (!quotient) continue;
    const Expression whole = list_[*quotient];
    const auto is_size_of = [&](ExpressionId size, ExpressionId of_it) {
      const Expression& each = list_[bare(size)];  // without its sign
      return each.op == ExpressionOp::greatest_signed && bare(each.a) == of_it &&
             list_[bare(each.b)].op == ExpressionOp::negate && bare(list_[bare(each.b)].a) == of_it;
    };
    const bool is_plain = bare(whole.a) == bare_n && bare(whole.b) == bare_divisor;
    const bool is_signed = is_size_of(whole.a, bare_n) && is_size_of(whole.b, bare_divisor);
    if (!is_plain && !is_signed) continue;
    return list_.make(is_signed ? ExpressionOp::remainder_signed : ExpressionOp::remainder, n, divisor,
                      1 + whole.value);
  }
  return {};
}

// A correction: one more where the remainder is not less than the divisor; or the remainder, less the divisor.
std::optional<ExpressionId> Addresses::corrected(std::span<const ExpressionId> alternatives,
                                                 std::span<const Comparison> comparisons, int depth) {
  if (alternatives.size() != 2) return {};
  const ExpressionId before = bare(alternatives[1]);
  const Expression kept = list_[before], changed = list_[bare(alternatives[0])];
  const bool is_quotient = kept.op == ExpressionOp::divide, is_remainder = kept.op == ExpressionOp::remainder;
  if ((!is_quotient && !is_remainder) || changed.op != ExpressionOp::add) return {};
  bool is_it = false;
  for (const auto& [one, other] : {std::pair{changed.a, changed.b}, std::pair{changed.b, changed.a}}) {
    if (bare(one) != before) continue;
    const Expression& added = list_[other];
    is_it |=
        is_quotient ? list_.is_number(other, 1) : added.op == ExpressionOp::negate && bare(added.a) == bare(kept.b);
  }
  if (!is_it) return {};
  for (const Comparison& each : comparisons) {
    if (each.lower != Comparison::kNoInstruction || each.is_signed) continue;
    const SourceOperands of_it = operands_of(flow_, values_, each.instruction);
    const bool is_straight = each.relation == ExpressionRelation::at_least;
    if (!is_straight && each.relation != ExpressionRelation::at_most) continue;
    const ExpressionId left = bare(plain(each.instruction, is_straight ? of_it.a : of_it.b, depth + 1)),
                       right = bare(plain(each.instruction, is_straight ? of_it.b : of_it.a, depth + 1));
    const Expression& remains = list_[left];
    if (remains.op != ExpressionOp::remainder || right != bare(kept.b) || bare(remains.b) != right) continue;
    if (bare(remains.a) != bare(kept.a)) continue;
    if (is_quotient) return list_.make(ExpressionOp::divide, kept.a, kept.b, kept.value > 0 ? kept.value - 1 : 0);
    return list_.make(ExpressionOp::remainder, kept.a, kept.b, kept.value > 1 ? kept.value - 1 : 1);
  }
  return {};
}

}  // namespace nimble::code::sass
