// Values of 32 bits.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {
namespace {

constexpr std::size_t kMostSources = 12;  // of a choice
constexpr unsigned kExtended = 74;        // .X: with a carry
constexpr unsigned kSizeAt = 73;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view each : names)
    if (name == each) return true;
  return false;
}

}  // namespace

ExpressionId Addresses::of(ValueId value, int depth) {
  if (const auto found = narrow_.find(value); found != narrow_.end()) return found->second;
  if (depth > kMostDepth) return list_.unknown(32);
  const Value& each = values_.all()[value];
  if (each.kind == Value::Kind::choice) return choice(value, depth);
  const ExpressionId id = each.kind == Value::Kind::initial ? list_.unknown(32) : written(value, depth);
  narrow_[value] = id;
  return id;
}

ExpressionId Addresses::choice(ValueId value, int depth) {
  const std::vector<Source> from = sources(value);
  if (from.empty() || from.size() > kMostSources) return narrow_[value] = list_.unknown(32);
  const ExpressionId id = narrow_[value] = list_.choice(32, loop_of(value));
  std::vector<ExpressionId> alternatives;
  for (const Source& source : from) {
    const auto known = conditions(value, source);
    const ExpressionId one = narrowed(known, source.value, of(source.value, depth + 1), depth + 1);
    alternatives.push_back(possible(known, one, depth + 1));
  }
  list_.fill(id, alternatives);
  if (from.front().fact)
    if (const auto known = corrected(alternatives, conditions(value, from.front()), depth))
      return narrow_[value] = *known;
  return id;
}

bool Addresses::is_written_by(ValueId value, std::uint32_t& at, unsigned& index) const {
  const Value& each = values_.all()[value];
  if (each.kind != Value::Kind::written) return false;
  at = each.instruction;
  const auto written = values_.written(at);
  unsigned next = 0;
  std::size_t place = 0;
  for (const Registers& registers : flow_.instructions[at].written) {
    const bool is_register = registers.file == File::r || registers.file == File::ur;
    for (unsigned i = 0; i < registers.count; ++i, ++place) {
      if (!is_register) continue;
      if (written[place] == value) return index = next, true;
      ++next;
    }
  }
  return false;
}

ExpressionId Addresses::written(ValueId value, int depth) {
  std::uint32_t at = 0;
  unsigned index = 0;
  if (!is_written_by(value, at, index) || flow_.relocated.contains(at)) return list_.unknown(32);
  const Instruction& instruction = flow_.instructions[at];
  switch (instruction.what) {
    case Class::constant_load: {
      constexpr std::array<unsigned, 8> kBytes{1, 1, 2, 2, 4, 8, 16, 16};
      const auto size = static_cast<unsigned>(flow_.word(at).bits(kSizeAt, 3));
      const unsigned bytes = kBytes[size] > 4 ? 4 : kBytes[size];
      const std::int64_t offset = std::int64_t{instruction.constant->offset} + 4 * index;
      const bool is_signed = size == 1 || size == 3;
      if (instruction.constant->index) return number_at(at, offset - kernel_.params_at, bytes, is_signed, depth);
      return constant(instruction.constant->bank, offset, bytes, is_signed);
    }
    case Class::load:
    case Class::atomic:
      return load(at, value, index, depth);
    case Class::integer:
    case Class::number:
      break;
    default:
      return list_.unknown(32);
  }
  if (is_one_of(instruction.name, {"S2R", "S2UR"})) return special(at);
  unsigned registers = 0;
  for (const Registers& each : instruction.written)
    if (each.file == File::r || each.file == File::ur) registers += each.count;
  if (registers == 1) return arithmetic(at, depth);
  // One half of a result of 64 bits.
  ValueId low = value, high = value;
  (index == 0 ? high : low) = index == 0 ? value + 1 : value - 1;
  std::uint32_t other = 0;
  unsigned other_index = 0;
  const auto is_half = [&](ValueId half, unsigned expected) {
    return half < values_.all().size() && is_written_by(half, other, other_index) && other == at &&
           other_index == expected;
  };
  if (registers != 2 || !is_half(low, 0) || !is_half(high, 1)) return list_.unknown(32);
  const auto whole = wide_result({low, high}, depth + 1);
  if (!whole) return list_.unknown(32);
  return list_.make(index == 0 ? ExpressionOp::low : ExpressionOp::high, *whole);
}

ExpressionId Addresses::arithmetic(std::uint32_t at, int depth) {
  const std::string_view name = flow_.instructions[at].name;
  const SourceOperands from = operands_of(flow_, values_, at);
  if (is_one_of(name, {"MOV", "UMOV"})) return plain(at, from.b, depth);
  if (name == "R2UR" || name == "SHFL") return of_other_lane(plain(at, from.a, depth));
  if (is_one_of(name, {"IADD3", "UIADD3", "IADD", "UIADD", "VIADD", "UVIADD"})) return sum(at, depth);
  if (is_one_of(name, {"IMAD", "UIMAD"})) return multiply(at, depth);
  if (is_one_of(name, {"LEA", "ULEA"})) return shift(at, depth);
  if (is_one_of(name, {"SHF", "USHF"})) return shift(at, depth);
  if (is_one_of(name, {"LOP3", "ULOP3"})) return logic(at, depth);
  if (is_one_of(name, {"SEL", "USEL", "IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX"})) return select(at, depth);
  if (is_one_of(name, {"PRMT", "UPRMT"})) return permute(at, depth);
  if (name == "HFMA2" || name == "CS2R") {
    std::uint32_t value = 0;  // how numbers are made
    if (constant_of(flow_.instructions[at], value)) return list_.number(value, 32);
  }
  if (name == "IABS" || name == "UIABS") {
    const ExpressionId b = plain(at, from.b, depth);
    return list_.make(ExpressionOp::greatest_signed, b, list_.negate(b));
  }
  if (name == "VIADDMNMX") return select(at, depth);
  if (is_one_of(name, {"POPC", "UPOPC"})) return list_.leaf(ExpressionOp::up_to, 32, 32);
  return list_.unknown(32);
}

// ---- operands ----

ExpressionId Addresses::plain(std::uint32_t at, const SourceOperand& operand, int depth) {
  switch (operand.kind) {
    case SourceOperand::Kind::zero:
      return list_.number(0, 32);
    case SourceOperand::Kind::immediate:
      return list_.number(operand.immediate, 32);
    case SourceOperand::Kind::constant:
      return constant(operand.bank, operand.offset, 4, false);
    case SourceOperand::Kind::registers:
      break;
  }
  return narrowed(at, operand.values[0], of(operand.values[0], depth + 1), depth + 1);
}

// Made in the same way, but not the same number.
ExpressionId Addresses::of_other_lane(ExpressionId id) {
  const ExpressionOp op = list_[id].op;
  if (op == ExpressionOp::constant || op == ExpressionOp::param || op == ExpressionOp::unknown) return id;
  const ExpressionId choice = list_.choice(32, 0);
  list_.fill(choice, std::array{id, id});
  return choice;
}

ExpressionId Addresses::operand(std::uint32_t at, const SourceOperand& operand, int depth) {
  const ExpressionId id = plain(at, operand, depth);
  return operand.negated ? list_.negate(id) : id;
}

std::optional<ExpressionId> Addresses::comparison(const Comparison& each, int depth) {
  const SourceOperands of_it = operands_of(flow_, values_, each.instruction);
  ExpressionId left = 0, right = 0;
  if (each.lower != Comparison::kNoInstruction) {
    const SourceOperands of_lower = operands_of(flow_, values_, each.lower);
    left = wide_operand(each.lower, of_lower.a, each.instruction, of_it.a, depth + 1);
    right = wide_operand(each.lower, of_lower.b, each.instruction, of_it.b, depth + 1);
  } else if (of_it.a.is_wide() || of_it.b.is_wide()) {
    left = wide_operand(each.instruction, of_it.a, depth + 1);
    right = wide_operand(each.instruction, of_it.b, depth + 1);
  } else {
    left = plain(each.instruction, of_it.a, depth + 1);
    right = plain(each.instruction, of_it.b, depth + 1);
  }
  if (list_.is_unknown(left) || list_.is_unknown(right)) return std::nullopt;
  return list_.make(ExpressionOp::where, left, right,
                    static_cast<std::int64_t>(each.relation) + (each.is_signed ? kSignedRelation : 0));
}

// From 0 to 1, or just that where it is always the same.
ExpressionId Addresses::carry(Word word, unsigned predicate, unsigned negated) {
  const FixedPredicate fixed = fixed_predicate(word, predicate, negated);
  return fixed.is_fixed ? list_.number(fixed.holds ? 1 : 0, 32) : list_.leaf(ExpressionOp::up_to, 1, 32);
}

// ---- what numbers are made of ----

// Of so many bytes, with zeros above, as a number with a sign.
ExpressionId Addresses::with_sign(ExpressionId id, unsigned bytes) {
  const ExpressionId unused = list_.number(32 - 8 * std::int64_t{bytes}, 32);
  return list_.make(ExpressionOp::shift_right_signed, list_.make(ExpressionOp::shift_left, id, unused), unused);
}

// By an index into the parameters: some of their bytes.
ExpressionId Addresses::number_at(std::uint32_t at, std::int64_t offset, unsigned bytes, bool is_signed, int depth) {
  const ConstantOperand& constant = *flow_.instructions[at].constant;
  const auto index = values_.read(at, *constant.index);
  ExpressionId id = list_.unknown(32);
  if (constant.bank == 0 && offset >= 0 && offset < kernel_.param_bytes && index.size() == 1)
    id = narrowed(at, index[0], of(index[0], depth + 1), depth + 1);
  const bool is_small = bytes < 4 && !is_signed;
  if (list_.is_unknown(id))
    return is_small ? list_.leaf(ExpressionOp::up_to, (std::int64_t{1} << 8 * bytes) - 1, 32) : list_.unknown(32);
  const ExpressionId number = list_.number_at(id, offset, bytes);
  return is_signed ? with_sign(number, bytes) : number;
}

ExpressionId Addresses::constant(unsigned bank, std::int64_t offset, unsigned bytes, bool is_signed) {
  if (bank == 3) return list_.leaf(ExpressionOp::loaded, 0, 32);
  if (bank != 0) return list_.unknown(32);
  const std::int64_t begin = kernel_.params_at, end = begin + kernel_.param_bytes;
  if (offset >= begin && offset + bytes <= end) {
    const ExpressionId id = list_.leaf(ExpressionOp::param, offset - begin, 32, bytes);
    return is_signed ? with_sign(id, bytes) : id;
  }
  // The sizes of blocks and of the grid. Measured: what kernels that need them read (nvcc 13.0, sm_75 to sm_121).
  constexpr unsigned kFirstMoved = 100;
  const bool is_moved = kernel_.arch >= kFirstMoved;
  const std::int64_t threads = is_moved ? 0x360 : 0, blocks = is_moved ? 0x370 : 0xc;
  if (bytes != 4) return list_.unknown(32);
  for (int i = 0; i < 3; ++i) {
    using enum ExpressionLaunch;
    if (offset == threads + 4 * i)
      return list_.leaf(ExpressionOp::launch, static_cast<std::int64_t>(threads_x) + i, 32);
    if (offset == blocks + 4 * i) return list_.leaf(ExpressionOp::launch, static_cast<std::int64_t>(blocks_x) + i, 32);
  }
  return list_.unknown(32);
}

ExpressionId Addresses::special(std::uint32_t at) {
  using enum ExpressionLaunch;
  constexpr std::int64_t kLane = 0x00, kThread = 0x21, kBlock = 0x25;
  constexpr std::int64_t kLastLane = 31;
  const auto which = static_cast<std::int64_t>(flow_.word(at).bits(72, 8));
  if (which == kLane) return list_.leaf(ExpressionOp::up_to, kLastLane, 32);
  for (int i = 0; i < 3; ++i) {
    if (which == kThread + i) return list_.leaf(ExpressionOp::launch, static_cast<std::int64_t>(thread_x) + i, 32);
    if (which == kBlock + i) return list_.leaf(ExpressionOp::launch, static_cast<std::int64_t>(block_x) + i, 32);
  }
  return list_.unknown(32);
}

// What lies in global memory was put there by others, or is an index of the kernel's own; what it keeps in shared
// memory is whatever it computed.
ExpressionId Addresses::load(std::uint32_t at, ValueId value, unsigned index, int depth) {
  const Instruction& instruction = flow_.instructions[at];
  const bool is_global = instruction.memory.size() == 1 && instruction.memory[0].space == Space::global;
  return is_global ? list_.leaf(ExpressionOp::loaded, 0, 32) : loaded_back(at, value, index, depth);
}

// ---- arithmetic ----

ExpressionId Addresses::sum(std::uint32_t at, int depth) {
  const std::string_view name = flow_.instructions[at].name;
  const Word word = flow_.word(at);
  const SourceOperands from = operands_of(flow_, values_, at);
  const bool has_three = name == "IADD3" || name == "UIADD3";
  const bool has_carry = word.bit(kExtended) != 0 && name != "VIADD" && name != "UVIADD";
  if (!has_three && word.bit(73) != 0 && name != "VIADD" && name != "UVIADD") return list_.unknown(32);  // .64
  ExpressionId all = list_.number(0, 32);
  for (const SourceOperand* each : {&from.a, &from.b, has_three ? &from.c : nullptr}) {
    if (each == nullptr) continue;
    // With a carry it is the complement that is added.
    const ExpressionId one = plain(at, *each, depth);
    all = list_.add(all, !each->negated ? one : has_carry ? list_.complement(one) : list_.negate(one));
  }
  if (!has_carry) return all;
  all = list_.add(all, carry(word, 87, 90));
  return has_three ? list_.add(all, carry(word, 77, 80)) : all;
}

ExpressionId Addresses::multiply(std::uint32_t at, int depth) {
  const unsigned kind = flow_.instructions[at].opcode & 0x7f;
  const Word word = flow_.word(at);
  const SourceOperands from = operands_of(flow_, values_, at);
  const bool has_carry = word.bit(kExtended) != 0;
  constexpr unsigned kLow = 0x24, kWide = 0x25;
  const ExpressionId a = plain(at, from.a, depth), b = plain(at, from.b, depth);
  if (kind == kLow) {
    const ExpressionId c = plain(at, from.c, depth);
    if (!has_carry && !from.c.negated)
      if (const auto rest = remainder(c, a, b, depth)) return *rest;
    const ExpressionId product = list_.make(ExpressionOp::multiply, a, b);
    const ExpressionId all = list_.add(product, !from.c.negated ? c
                                                : has_carry     ? list_.complement(c)
                                                                : list_.negate(c));
    return has_carry ? list_.add(all, carry(word, 87, 90)) : all;
  }
  if (kind == kWide || has_carry) return list_.unknown(32);
  // The upper half of a product, to which 64 bits may be added.
  const bool is_signed = word.bit(73) != 0;
  if (from.c.kind == SourceOperand::Kind::zero && !is_signed) {
    constexpr std::int64_t kMostTooSmall = 2;
    if (const auto divisor = reciprocal_of(from.a, depth))
      return list_.make(ExpressionOp::divide, b, *divisor, kMostTooSmall);
    if (const auto divisor = reciprocal_of(from.b, depth))
      return list_.make(ExpressionOp::divide, a, *divisor, kMostTooSmall);
  }
  if (from.c.kind == SourceOperand::Kind::zero)
    return list_.make(is_signed ? ExpressionOp::multiply_high_signed : ExpressionOp::multiply_high, a, b);
  const ExpressionOp extend = is_signed ? ExpressionOp::widen_signed : ExpressionOp::widen;
  const ExpressionId product = list_.make(ExpressionOp::multiply, list_.make(extend, a), list_.make(extend, b));
  const ExpressionId c = wide_operand(at, from.c, depth + 1);
  return list_.make(ExpressionOp::high, list_.add(product, from.c.negated ? list_.negate(c) : c));
}

ExpressionId Addresses::shift(std::uint32_t at, int depth) {
  using enum ExpressionOp;
  const std::string_view name = flow_.instructions[at].name;
  const Word word = flow_.word(at);
  const SourceOperands from = operands_of(flow_, values_, at);
  if (name == "LEA" || name == "ULEA") {
    const ExpressionId by = list_.number(static_cast<std::int64_t>(word.bits(75, 5)), 32);
    const bool is_upper = word.bit(80) != 0, has_carry = word.bit(kExtended) != 0;
    const unsigned form = flow_.instructions[at].opcode >> 9 & 7;
    const bool negates_b = word.bit(63) != 0 && form != 2 && form != 4;
    if (word.bit(72) != 0 || negates_b) return list_.unknown(32);
    ExpressionId shifted = 0;
    if (!is_upper) {
      shifted = list_.make(shift_left, plain(at, from.a, depth), by);
    } else {
      const bool extends_sign = word.bit(73) != 0;
      const ExpressionId a = extends_sign ? list_.make(widen_signed, plain(at, from.a, depth))
                                          : wide_operand(at, from.a, at, from.c, depth);
      shifted = list_.make(high, list_.make(shift_left, a, by));
    }
    const ExpressionId all = list_.add(shifted, plain(at, from.b, depth));
    return has_carry ? list_.add(all, carry(word, 87, 90)) : all;
  }
  const bool is_32 = word.bit(74) != 0, is_signed = word.bit(73) == 0, wraps = word.bit(75) != 0,
             goes_right = word.bit(76) != 0, is_upper = word.bit(80) != 0;
  ExpressionId by = plain(at, from.b, depth);
  if (wraps) by = list_.make(bit_and, by, list_.number(is_32 ? 31 : 63, 32));
  if (!wraps && is_32 && list_[by].op != ExpressionOp::constant) by = list_.make(least, by, list_.number(32, 32));
  if (goes_right && is_upper)
    return list_.make(is_signed ? shift_right_signed : shift_right, plain(at, from.c, depth), by);
  if (!goes_right && !is_upper) return list_.make(shift_left, plain(at, from.a, depth), by);
  const ExpressionId both = wide_operand(at, from.a, at, from.c, depth);
  const ExpressionId shifted = list_.make(!goes_right ? shift_left
                                          : is_signed ? shift_right_signed
                                                      : shift_right,
                                          both, by);
  return list_.make(is_upper ? high : low, shifted);
}

// Which function of three inputs the table holds: two of them joined, and that joined with the third.
ExpressionId Addresses::logic(std::uint32_t at, int depth) {
  using enum ExpressionOp;
  const Word word = flow_.word(at);
  const SourceOperands from = operands_of(flow_, values_, at);
  const auto table = static_cast<unsigned>(word.bits(72, 8));
  // Negations of operands do not exist here: the table has them.
  const std::array<const SourceOperand*, 3> operands{&from.a, &from.b, &from.c};
  constexpr std::array<unsigned, 3> kTables{0xf0, 0xcc, 0xaa};
  // Rows that occur: an operand that is zero, or all ones, is no choice.
  unsigned possible = 0xff;
  for (unsigned i = 0; i < 3; ++i) {
    const bool is_zero = operands[i]->kind == SourceOperand::Kind::zero ||
                         (operands[i]->kind == SourceOperand::Kind::immediate && operands[i]->immediate == 0);
    if (is_zero) possible &= ~kTables[i];
    if (operands[i]->kind == SourceOperand::Kind::immediate && operands[i]->immediate == 0xffffffffu)
      possible &= kTables[i];
  }
  const auto is_same = [&](unsigned other) { return ((table ^ other) & possible & 0xff) == 0; };
  if (is_same(0)) return list_.number(0, 32);
  if (is_same(0xff)) return list_.number(-1, 32);
  const auto join = [](ExpressionOp op, unsigned x, unsigned y) {
    return op == bit_and ? x & y : op == bit_or ? x | y : x ^ y;
  };
  const auto input = [&](unsigned i, bool negated) {
    const ExpressionId id = plain(at, *operands[i], depth);
    return negated ? list_.complement(id) : id;
  };
  for (unsigned i = 0; i < 3; ++i)
    for (const bool negated : {false, true})
      if (is_same(negated ? ~kTables[i] : kTables[i])) return input(i, negated);
  for (const ExpressionOp op : {bit_and, bit_or, bit_xor}) {
    for (unsigned i = 0; i < 3; ++i) {
      for (unsigned j = i + 1; j < 3; ++j) {
        for (unsigned negations = 0; negations < 4; ++negations) {
          const bool first = (negations & 1) != 0, second = (negations & 2) != 0;
          const unsigned x = first ? ~kTables[i] : kTables[i], y = second ? ~kTables[j] : kTables[j];
          if (is_same(join(op, x, y))) return list_.make(op, input(i, first), input(j, second));
          const unsigned k = 3 - i - j;
          for (const ExpressionOp outer : {bit_and, bit_or, bit_xor}) {
            for (const bool third : {false, true}) {
              if (!is_same(join(outer, join(op, x, y), third ? ~kTables[k] : kTables[k]))) continue;
              return list_.make(outer, list_.make(op, input(i, first), input(j, second)), input(k, third));
            }
          }
        }
      }
    }
  }
  return list_.unknown(32);
}

ExpressionId Addresses::select(std::uint32_t at, int depth) {
  using enum ExpressionOp;
  const std::string_view name = flow_.instructions[at].name;
  const Word word = flow_.word(at);
  const SourceOperands from = operands_of(flow_, values_, at);
  const ExpressionId a = plain(at, from.a, depth), b = plain(at, from.b, depth);
  const FixedPredicate fixed = fixed_predicate(word, 87, 90);
  if (name == "VIADDMNMX") {
    if (!fixed.is_fixed || word.bits(73, 2) != 0 || word.bit(76) != 0 || from.a.negated) return list_.unknown(32);
    const ExpressionId both = list_.add(a, from.b.negated ? list_.negate(b) : b), c = plain(at, from.c, depth);
    const bool is_signed = word.bit(72) != 0;
    return list_.make(fixed.holds ? (is_signed ? least_signed : least) : (is_signed ? greatest_signed : greatest), both,
                      c);
  }
  const bool is_choice = name == "SEL" || name == "USEL";
  if (fixed.is_fixed && is_choice) return fixed.holds ? a : b;
  const bool is_vector = name == "VIMNMX" || name == "UVIMNMX";
  if (fixed.is_fixed && !is_choice && (!is_vector || word.bits(73, 4) == 0) && !from.a.negated && !from.b.negated) {
    const bool is_signed = word.bit(is_vector ? 72 : 73) != 0;
    return list_.make(fixed.holds ? (is_signed ? least_signed : least) : (is_signed ? greatest_signed : greatest), a,
                      b);
  }
  if (!is_choice && (from.a.negated || from.b.negated || is_vector)) return list_.unknown(32);
  const ExpressionId id = list_.choice(32, 0);
  const std::array<ExpressionId, 2> both{selected(at, from.a, a, true, depth), selected(at, from.b, b, false, depth)};
  list_.fill(id, both);
  return id;
}

// One of the two that a selection takes: by its predicate something may be known of it.
ExpressionId Addresses::selected(std::uint32_t at, const SourceOperand& operand, ExpressionId id, bool is_first,
                                 int depth) {
  constexpr unsigned kPredicate = 87, kNegated = 90;
  const std::string_view name = flow_.instructions[at].name;
  const ValueId predicate = conditions_.predicate_at(at, kPredicate);
  if (predicate == kNoValue || (name != "SEL" && name != "USEL") || values_.stands_for_others(at) ||
      operand.kind != SourceOperand::Kind::registers || operand.is_wide())
    return id;
  const auto known = conditions_.of({predicate, is_first != (flow_.word(at).bit(kNegated) != 0)});
  return narrowed(known, operand.values[0], id, depth + 1);
}

// Moves of all bytes, and of a few with zeros above them.
// Bytes of two registers, in any order; in the upper ones there may be copies of the highest bit below.
ExpressionId Addresses::permute(std::uint32_t at, int depth) {
  const SourceOperands from = operands_of(flow_, values_, at);
  if (from.b.kind != SourceOperand::Kind::immediate || flow_.word(at).bits(72, 3) != 0) return list_.unknown(32);
  constexpr unsigned kBytes = 4, kSign = 8;
  const auto selected = [&](unsigned byte) { return from.b.immediate >> 4 * byte & 15; };
  const auto shifted = [&](ExpressionOp op, ExpressionId value, unsigned bytes) {
    return bytes == 0 ? value : list_.make(op, value, list_.number(8 * std::int64_t{bytes}, 32));
  };
  ExpressionId result = list_.number(0, 32);
  unsigned done = 0;
  while (done < kBytes && selected(done) < kSign) {
    // So many bytes stand in one register, in order.
    const unsigned first = selected(done) % kBytes;
    unsigned count = 1;
    while (done + count < kBytes && first + count < kBytes && selected(done + count) == selected(done) + count) ++count;
    const SourceOperand& operand = selected(done) < kBytes ? from.a : from.c;
    if (operand.kind != SourceOperand::Kind::zero) {
      ExpressionId part = shifted(ExpressionOp::shift_right, plain(at, operand, depth), first);
      if (first + count < kBytes)
        part = list_.make(ExpressionOp::bit_and, part, list_.number((std::int64_t{1} << 8 * count) - 1, 32));
      part = shifted(ExpressionOp::shift_left, part, done);
      result = done == 0 ? part : list_.make(ExpressionOp::bit_or, result, part);
    }
    done += count;
  }
  if (done == kBytes) return result;
  for (unsigned rest = done; rest < kBytes; ++rest)
    if (done == 0 || selected(rest) != selected(done - 1) + kSign) return list_.unknown(32);
  return shifted(ExpressionOp::shift_right_signed, shifted(ExpressionOp::shift_left, result, kBytes - done),
                 kBytes - done);
}

}  // namespace nimble::code::sass
