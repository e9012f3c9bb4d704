// Sums and shifts of 64 bits by two instructions: one for each half, with a carry, or with bits that go from the one
// into the other.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kExtended = 74;                       // .X: with a carry
constexpr unsigned kFirstCarry = 81, kSecondCarry = 84;  // predicates that a sum writes
constexpr unsigned kFirstInput = 87, kSecondInput = 77;  // and those that are added

bool is_sum(std::string_view name) {
  return name == "IADD3" || name == "UIADD3" || name == "IADD" || name == "UIADD" || is_product(name);
}
bool is_shifted_sum(std::string_view name) { return name == "LEA" || name == "ULEA"; }

// Which of these values, of these registers, is the predicate that stands at `bit` of the instruction.
template <typename Operands, typename Ids>
ValueId predicate_at(unsigned bit, const Operands& operands, const Ids& values) {
  std::size_t next = 0;
  for (const Registers& registers : operands) {
    if ((registers.file == File::p || registers.file == File::up) && registers.at == bit) return values[next];
    next += registers.count;
  }
  return kNoValue;
}

// Of three numbers two carries may come.
enum class Carries { none, one, both };

// Which carries of the sum at `low` the sum at `high` takes up; none if it takes up anything else.
Carries carries_between(const ControlFlow& flow, const Values& values, std::uint32_t low, std::uint32_t high) {
  const Instruction &of_low = flow.instructions[low], &of_high = flow.instructions[high];
  const Word word = flow.word(high);
  const ValueId first = predicate_at(kFirstCarry, of_low.written, values.written(low)),
                second = predicate_at(kSecondCarry, of_low.written, values.written(low));
  const bool takes_first = first != kNoValue && predicate_at(kFirstInput, of_high.read, values.read(high)) == first;
  if (!takes_first || word.bit(90) != 0) return Carries::none;  // or negated
  const std::string_view name = of_high.name;
  if (name != "IADD3" && name != "UIADD3") return Carries::one;
  const FixedPredicate fixed = fixed_predicate(word, kSecondInput, 80);
  const ValueId other = predicate_at(kSecondInput, of_high.read, values.read(high));
  const bool takes_second = other != kNoValue && other == second;
  if (!(fixed.is_fixed && !fixed.holds) && (!takes_second || word.bit(80))) return Carries::none;
  return takes_second ? Carries::both : Carries::one;
}

// Which of three upper halves belongs to which lower half: the assignment with the highest total score. Nothing if
// every assignment has an impossible pair. `score`: of a lower and an upper half; negative if they cannot be a pair.
template <typename Score>
std::optional<std::array<unsigned, 3>> likeliest_order(Score score) {
  std::array<unsigned, 3> order{0, 1, 2}, best{0, 1, 2};
  int most = -100;
  do {
    int sum = 0;
    for (unsigned i = 0; i < 3; ++i) {
      const int one = score(i, order[i]);
      sum += one < 0 ? -50 : one;
    }
    if (sum > most) most = sum, best = order;
  } while (std::next_permutation(order.begin(), order.end()));
  if (most < 0) return std::nullopt;
  return best;
}

}  // namespace

// How likely two operands are halves of one value. Any way to put them together is right; one says more than others.
int Addresses::match(const SourceOperand& low, const SourceOperand& high) const {
  using Kind = SourceOperand::Kind;
  if (low.negated != high.negated) return -1;
  if (low.kind == Kind::zero && high.kind == Kind::zero) return 3;
  if (high.kind == Kind::zero) return 1;
  if (low.kind == Kind::constant && high.kind == Kind::constant) return high.offset == low.offset + 4 ? 5 : 0;
  if (low.kind == Kind::immediate && (high.kind == Kind::immediate || high.kind == Kind::registers)) return 2;
  if (low.kind != Kind::registers || high.kind != Kind::registers) return low.kind == Kind::zero ? 0 : 1;
  const ValueId l = low.values[0], h = high.values[0];
  if (is_sign_of(h, l)) return 6;
  std::uint32_t at = 0, other = 0;
  unsigned index = 0, other_index = 0;
  const Value &vl = values_.all()[l], &vh = values_.all()[h];
  if (vl.kind != vh.kind) return 1;
  if (vl.kind == Value::Kind::choice) return vl.instruction == vh.instruction ? 5 : 1;
  if (!is_written_by(l, at, index) || !is_written_by(h, other, other_index)) return 1;
  if (at == other) return other_index == index + 1 ? 6 : 0;
  // The one takes up the other's carry.
  for (const Registers& written : flow_.instructions[at].written) {
    if (written.file != File::p && written.file != File::up) continue;
    std::size_t next = 0, place = 0;
    for (const Registers& each : flow_.instructions[at].written) {
      if (each == written) place = next;
      next += each.count;
    }
    const ValueId carry = values_.written(at)[place];
    if (std::ranges::find(values_.read(other), carry) != values_.read(other).end()) return 6;
  }
  return 2;
}

// Whether two operands have the same value: they are the same, or something that never changes.
bool Addresses::is_same(std::uint32_t at, const SourceOperand& a, std::uint32_t other, const SourceOperand& b,
                        int depth) {
  using Kind = SourceOperand::Kind;
  if (a.kind == Kind::registers && b.kind == Kind::registers && a.values[0] == b.values[0]) return true;
  const ExpressionId one = plain(at, a, depth);
  const ExpressionOp op = list_[one].op;
  return (op == ExpressionOp::constant || op == ExpressionOp::param || op == ExpressionOp::launch) &&
         one == plain(other, b, depth);
}

// What a sum adds up. Products with one are what is left of IMAD.X.
bool Addresses::addends(std::uint32_t at, const SourceOperands& from, std::array<SourceOperand, 3>& out, int depth) {
  const std::string_view name = flow_.instructions[at].name;
  if (!is_product(name)) {
    out = {from.a, from.b, name == "IADD" || name == "UIADD" ? SourceOperand{} : from.c};
    return true;
  }
  if ((flow_.instructions[at].opcode & 0x7f) != 0x24) return false;
  const auto is_one = [&](const SourceOperand& each) { return list_.is_number(plain(at, each, depth), 1); };
  const auto is_zero = [&](const SourceOperand& each) { return each.kind == SourceOperand::Kind::zero; };
  SourceOperand product;
  if (!is_zero(from.a) && !is_zero(from.b)) {
    if (!is_one(from.a) && !is_one(from.b)) return false;
    product = is_one(from.b) ? from.a : from.b;
    product.negated = false;
  }
  out = {product, from.c, SourceOperand{}};
  return true;
}

// LEA.HI for the lower half, and for the upper one its carry: the upper bits of what is shifted are added, which is how
// a number is rounded to zero before it is divided by a power of two.
std::optional<ExpressionId> Addresses::wide_sum_with_upper_bits(std::uint32_t low, const SourceOperands& l,
                                                                std::uint32_t high,
                                                                std::span<const SourceOperand> highs, int depth) {
  const SourceOperand* upper = nullptr;
  for (const SourceOperand& each : highs) {
    if (each.negated || (upper != nullptr && each.kind != SourceOperand::Kind::zero)) return std::nullopt;
    if (each.kind != SourceOperand::Kind::zero) upper = &each;
  }
  const ExpressionId a = flow_.word(low).bit(73) != 0 ? list_.make(ExpressionOp::widen_signed, plain(low, l.a, depth))
                                                      : wide_operand(low, l.a, low, l.c, depth);
  const ExpressionId by = list_.number(static_cast<std::int64_t>(flow_.word(low).bits(75, 5)), 32);
  const ExpressionId bits = list_.make(ExpressionOp::high, list_.make(ExpressionOp::shift_left, a, by));
  return list_.add(list_.make(ExpressionOp::widen, bits),
                   wide_operand(low, l.b, high, upper != nullptr ? *upper : SourceOperand{}, depth));
}

// LEA for the lower half, and for the upper one the sum with what was shifted out, which was found before.
std::optional<ExpressionId> Addresses::wide_shifted_sum(std::uint32_t low, const SourceOperands& l, std::uint32_t high,
                                                        const SourceOperands& h, int depth) {
  const Word low_word = flow_.word(low);
  const unsigned form = flow_.instructions[low].opcode >> 9 & 7;
  const bool negates = low_word.bit(72) != 0 || (low_word.bit(63) != 0 && form != 2 && form != 4);
  std::array<SourceOperand, 3> highs;
  if (negates || !addends(high, h, highs, depth)) return std::nullopt;
  if (low_word.bit(80) != 0) return wide_sum_with_upper_bits(low, l, high, highs, depth);
  for (std::size_t i = 0; i < highs.size(); ++i) {
    std::uint32_t shifts = 0;
    unsigned index = 0;
    if (highs[i].kind != SourceOperand::Kind::registers || highs[i].negated) continue;
    if (!is_written_by(highs[i].values[0], shifts, index) || !is_shift(flow_.instructions[shifts].name)) continue;
    const Word word = flow_.word(shifts);
    const SourceOperands s = operands_of(flow_, values_, shifts);
    const bool is_upper = word.bit(76) == 0 && word.bit(80) != 0 && word.bit(74) == 0;
    if (!is_upper || s.b.kind != SourceOperand::Kind::immediate || s.b.immediate != low_word.bits(75, 5)) continue;
    if (!is_same(low, l.a, shifts, s.a, depth)) continue;
    // Of the others one is the upper half of what is added, and one is zero.
    const SourceOperand &first = highs[(i + 1) % 3], &second = highs[(i + 2) % 3];
    const bool first_is = first.kind != SourceOperand::Kind::zero;
    const SourceOperand& upper = first_is ? first : second;
    if (first.negated || second.negated || (first_is && second.kind != SourceOperand::Kind::zero)) continue;
    const ExpressionId shifted = list_.make(ExpressionOp::shift_left, wide_operand(shifts, s.a, shifts, s.c, depth),
                                            list_.number(static_cast<std::int64_t>(low_word.bits(75, 5)), 32));
    return list_.add(shifted, wide_operand(low, l.b, high, upper, depth));
  }
  return std::nullopt;
}

// LEA, and LEA.HI.X with the same shift of the same number.
std::optional<ExpressionId> Addresses::wide_shifted_pair(std::uint32_t low, const SourceOperands& l, std::uint32_t high,
                                                         const SourceOperands& h, int depth) {
  const Word low_word = flow_.word(low), high_word = flow_.word(high);
  const bool is_upper = high_word.bit(80) != 0, low_is_lower = low_word.bit(80) == 0;
  if (!is_upper || !low_is_lower) return std::nullopt;
  if (low_word.bits(75, 5) != high_word.bits(75, 5) || low_word.bit(72) != 0 || high_word.bit(72) != 0)
    return std::nullopt;
  const auto negates = [&](std::uint32_t at, Word word) {
    const unsigned form = flow_.instructions[at].opcode >> 9 & 7;
    return word.bit(63) != 0 && form != 2 && form != 4;
  };
  if (negates(low, low_word) || negates(high, high_word)) return std::nullopt;
  if (!is_same(low, l.a, high, h.a, depth)) return std::nullopt;
  const ExpressionId a = high_word.bit(73) != 0 ? list_.make(ExpressionOp::widen_signed, plain(low, l.a, depth))
                                                : wide_operand(low, l.a, high, h.c, depth);
  const ExpressionId shifted =
      list_.make(ExpressionOp::shift_left, a, list_.number(static_cast<std::int64_t>(low_word.bits(75, 5)), 32));
  return list_.add(shifted, wide_operand(low, l.b, high, h.b, depth));
}

// A sum whose carry goes into another sum.
std::optional<ExpressionId> Addresses::wide_sum(Pair pair, int depth) {
  std::uint32_t low = 0, high = 0;
  unsigned low_index = 0, high_index = 0;
  if (!is_written_by(pair.low, low, low_index) || !is_written_by(pair.high, high, high_index)) return std::nullopt;
  const std::string_view low_name = flow_.instructions[low].name, high_name = flow_.instructions[high].name;
  const Word low_word = flow_.word(low), high_word = flow_.word(high);
  if ((!is_sum(low_name) && !is_shifted_sum(low_name)) || (!is_sum(high_name) && !is_shifted_sum(high_name)))
    return std::nullopt;
  if (high_word.bit(kExtended) == 0 || low_word.bit(kExtended) != 0) return std::nullopt;
  if (flow_.relocated.contains(low) || flow_.relocated.contains(high)) return std::nullopt;
  const Carries carries = carries_between(flow_, values_, low, high);
  if (carries == Carries::none) return std::nullopt;
  const SourceOperands l = operands_of(flow_, values_, low), h = operands_of(flow_, values_, high);
  if (is_shifted_sum(low_name))
    return is_shifted_sum(high_name) ? wide_shifted_pair(low, l, high, h, depth)
                                     : wide_shifted_sum(low, l, high, h, depth);
  const bool adds_sign = is_shifted_sum(high_name);
  std::array<SourceOperand, 3> lows, highs;
  if (!addends(low, l, lows, depth)) return std::nullopt;
  if (adds_sign) {
    // LEA.HI.X.SX32 with a shift by one: the upper half of a number with its sign, and what is added.
    const unsigned form = flow_.instructions[high].opcode >> 9 & 7;
    const bool negates = high_word.bit(72) != 0 || (high_word.bit(63) != 0 && form != 2 && form != 4);
    if (negates || high_word.bit(80) == 0 || high_word.bit(73) == 0 || high_word.bits(75, 5) != 1) return std::nullopt;
    highs = {h.a, h.b, SourceOperand{}};
  } else if (!addends(high, h, highs, depth)) {
    return std::nullopt;
  }
  const auto is_nothing = [](const SourceOperand& each) {
    return each.kind == SourceOperand::Kind::zero && !each.negated;
  };
  if (carries != Carries::both && std::ranges::none_of(lows, is_nothing)) return std::nullopt;
  // A zero without a sign adds nothing; with one it is all ones in the upper half.
  const auto order = likeliest_order([&](unsigned one, unsigned upper) {
    if (!adds_sign || upper != 0) return match(lows[one], highs[upper]);
    return !lows[one].negated && is_same(low, lows[one], high, highs[0], depth) ? 6 : -1;
  });
  if (!order) return std::nullopt;
  ExpressionId all = list_.number(0, 64);
  for (unsigned i = 0; i < 3; ++i) {
    const ExpressionId one = adds_sign && (*order)[i] == 0
                                 ? list_.make(ExpressionOp::widen_signed, plain(low, lows[i], depth))
                                 : wide_operand(low, lows[i], high, highs[(*order)[i]], depth);
    all = list_.add(all, lows[i].negated ? list_.negate(one) : one);
  }
  return all;
}

// A shift whose upper half is another instruction's.
std::optional<ExpressionId> Addresses::wide_shift(Pair pair, int depth) {
  std::uint32_t low = 0, high = 0;
  unsigned low_index = 0, high_index = 0;
  if (!is_written_by(pair.low, low, low_index) || !is_written_by(pair.high, high, high_index)) return std::nullopt;
  const Word high_word = flow_.word(high), low_word = flow_.word(low);
  const SourceOperands l = operands_of(flow_, values_, low), h = operands_of(flow_, values_, high);
  if (!is_shift(flow_.instructions[high].name) || h.b.kind != SourceOperand::Kind::immediate || h.b.immediate > 31)
    return std::nullopt;
  const bool is_upper = high_word.bit(80) != 0, goes_right = high_word.bit(76) != 0;
  if (!is_upper) return std::nullopt;
  const auto is_of = [&](const SourceOperand& a, const SourceOperand& b) { return is_same(low, a, high, b, depth); };
  const ExpressionId by = list_.number(h.b.immediate, 32);
  if (!goes_right) {
    // SHF.L.U64.HI, and whatever shifts the lower half.
    const std::string_view name = flow_.instructions[low].name;
    bool is_it = false;
    if (is_shift(name))
      is_it = low_word.bit(76) == 0 && low_word.bit(80) == 0 && l.b.kind == SourceOperand::Kind::immediate &&
              l.b.immediate == h.b.immediate && is_of(l.a, h.a);
    else if (is_product(name) && (flow_.instructions[low].opcode & 0x7f) == 0x24 && low_word.bit(kExtended) == 0)
      is_it = l.c.kind == SourceOperand::Kind::zero && l.b.kind == SourceOperand::Kind::immediate &&
              l.b.immediate == std::uint32_t{1} << h.b.immediate && is_of(l.a, h.a);
    else if (is_shifted_sum(name))
      is_it = low_word.bit(80) == 0 && low_word.bit(kExtended) == 0 && l.b.kind == SourceOperand::Kind::zero &&
              low_word.bits(75, 5) == h.b.immediate && is_of(l.a, h.a) && low_word.bit(72) == 0;
    if (!is_it) return std::nullopt;
    return list_.make(ExpressionOp::shift_left, wide_operand(high, h.a, high, h.c, depth), by);
  }
  if (!is_shift(flow_.instructions[low].name)) return std::nullopt;
  const bool is_it = low_word.bit(76) != 0 && low_word.bit(80) == 0 && low_word.bit(74) == 0 &&
                     l.b.kind == SourceOperand::Kind::immediate && l.b.immediate == h.b.immediate && is_of(l.c, h.c);
  if (!is_it) return std::nullopt;
  return list_.make(high_word.bit(73) == 0 ? ExpressionOp::shift_right_signed : ExpressionOp::shift_right,
                    wide_operand(low, l.a, high, h.c, depth), by);
}

}  // namespace nimble::code::sass
