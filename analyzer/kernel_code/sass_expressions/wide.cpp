// Values of 64 bits, whose halves are in two registers: by one instruction, or by one for each half.
#include <algorithm>
#include <array>
#include <string_view>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {
namespace {

constexpr std::size_t kMostSources = 12;
constexpr unsigned kExtended = 74;  // .X: with a carry

}  // namespace

ExpressionId Addresses::joined(ExpressionId low, ExpressionId high) {
  if (list_.is_number(high, 0)) return list_.make(ExpressionOp::widen, low);
  if (list_.is_unknown(low) || list_.is_unknown(high)) return list_.unknown(64);
  const ExpressionId shift = list_.number(32, 32);
  return list_.add(list_.make(ExpressionOp::widen, low),
                   list_.make(ExpressionOp::shift_left, list_.make(ExpressionOp::widen, high), shift));
}

ExpressionId Addresses::wide(Pair pair, int depth) {
  const std::uint64_t key = std::uint64_t{pair.high} << 32 | pair.low;
  if (const auto found = wide_.find(key); found != wide_.end()) return found->second;
  if (depth > kMostDepth) return list_.unknown(64);
  const auto all = values_.all();
  const bool is_choice = all[pair.low].kind == Value::Kind::choice || all[pair.high].kind == Value::Kind::choice;
  if (is_choice) {
    if (const auto extended = wide_extended(pair, depth)) return wide_[key] = *extended;
    return wide_choice(pair, depth);
  }
  const ExpressionId id = wide_written(pair, depth);
  return wide_[key] = id;
}

// Both halves are chosen at the same place; or one is chosen, and the other is the same each time that is.
ExpressionId Addresses::wide_choice(Pair pair, int depth) {
  const std::uint64_t key = std::uint64_t{pair.high} << 32 | pair.low;
  const auto all = values_.all();
  const Value &low = all[pair.low], &high = all[pair.high];
  const bool low_is = low.kind == Value::Kind::choice, high_is = high.kind == Value::Kind::choice;
  if (low_is && high_is) {
    const bool is_same = low.predicate == high.predicate && low.if_true == high.if_true && low.count == high.count;
    if (!is_same || (low.predicate == kNoValue && low.instruction != high.instruction))
      return wide_[key] = list_.unknown(64);
  } else if (!is_before(low_is ? pair.high : pair.low, low_is ? low : high, depth)) {
    return wide_[key] = list_.unknown(64);
  }
  const ValueId chosen = low_is ? pair.low : pair.high;
  const std::vector<Source> from = sources(chosen);
  if (from.empty() || from.size() > kMostSources) return wide_[key] = list_.unknown(64);
  const ExpressionId id = wide_[key] = list_.choice(64, loop_of(chosen));
  std::vector<ExpressionId> alternatives;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Pair source{low_is ? values_.choices(pair.low)[i] : pair.low,
                      high_is ? values_.choices(pair.high)[i] : pair.high};
    const auto known = conditions(chosen, from[i]);
    const ExpressionId one = wide_narrowed(known, source, wide(source, depth + 1), depth + 1);
    alternatives.push_back(possible(known, one, depth + 1));
  }
  list_.fill(id, alternatives);
  return id;
}

// Whether a value is there before a choice is made, so that it is the same whatever is chosen; or never changes.
bool Addresses::is_before(ValueId value, const Value& choice, int depth) {
  const Value& each = values_.all()[value];
  if (each.kind != Value::Kind::written) return false;
  const std::uint32_t block = conditions_.block_of(each.instruction), chosen = conditions_.block_of(choice.instruction);
  if (block != chosen && conditions_.dominators().dominates(block, chosen)) return true;
  const ExpressionOp op = list_[of(value, depth + 1)].op;
  return op == ExpressionOp::constant || op == ExpressionOp::param || op == ExpressionOp::launch;
}

bool Addresses::is_sign_of(ValueId high, ValueId low) const {
  std::uint32_t at = 0;
  unsigned index = 0;
  if (!is_written_by(high, at, index) || !is_shift(flow_.instructions[at].name)) return false;
  const Word word = flow_.word(at);
  const SourceOperands from = operands_of(flow_, values_, at);
  const bool is_arithmetic = word.bit(73) == 0 && word.bit(76) != 0 && word.bit(80) != 0;
  constexpr std::uint32_t kSign = 31;
  return is_arithmetic && from.b.kind == SourceOperand::Kind::immediate && from.b.immediate == kSign &&
         from.c.kind == SourceOperand::Kind::registers && from.c.values[0] == low;
}

// A number of 32 bits that was widened.
std::optional<ExpressionId> Addresses::wide_extended(Pair pair, int depth) {
  if (is_sign_of(pair.high, pair.low)) return list_.make(ExpressionOp::widen_signed, of(pair.low, depth + 1));
  std::uint32_t at = 0;
  unsigned index = 0;
  if (is_written_by(pair.high, at, index) && list_.is_number(of(pair.high, depth + 1), 0))
    return list_.make(ExpressionOp::widen, of(pair.low, depth + 1));
  return std::nullopt;
}

// What an instruction of 32 bits only moves; null where it does more.
const SourceOperand* Addresses::moved(std::uint32_t at, const SourceOperands& from) const {
  const std::string_view name = flow_.instructions[at].name;
  if (name == "R2UR" || name == "SHFL") return &from.a;
  if (name == "MOV" || name == "UMOV") return &from.b;
  const bool is_zero = from.a.kind == SourceOperand::Kind::zero || from.b.kind == SourceOperand::Kind::zero;
  const bool is_product_sum = is_product(name) && (flow_.instructions[at].opcode & 0x7f) == 0x24 && is_zero;
  const bool is_plain = flow_.word(at).bit(kExtended) == 0 && !from.c.negated;
  return is_product_sum && is_plain ? &from.c : nullptr;
}

// Whether both halves come from the same thread: neither from another, or both by the same shuffle.
bool Addresses::is_same_lane(std::uint32_t low, std::uint32_t high) const {
  const auto shuffles = [&](std::uint32_t at) { return std::string_view(flow_.instructions[at].name) == "SHFL"; };
  if (!shuffles(low) && !shuffles(high)) return true;
  if (!shuffles(low) || !shuffles(high) || flow_.instructions[low].opcode != flow_.instructions[high].opcode)
    return false;
  // All but where the value comes from and goes to, and when it runs.
  constexpr unsigned kControlAt = 41, kLowRegisters = 32;
  const Word l = flow_.word(low), h = flow_.word(high);
  if (l.low >> kLowRegisters != h.low >> kLowRegisters) return false;
  if ((l.high & ((std::uint64_t{1} << kControlAt) - 1)) != (h.high & ((std::uint64_t{1} << kControlAt) - 1)))
    return false;
  const SourceOperands a = operands_of(flow_, values_, low), b = operands_of(flow_, values_, high);
  return a.b.values == b.b.values && a.c.values == b.c.values;
}

// Whether two selections go by the same predicate: by its value, since the register may have another in between.
bool Addresses::is_same_choice(std::uint32_t low, std::uint32_t high) const {
  constexpr unsigned kAtChoice = 87, kNegated = 90;
  const auto chosen_by = [&](std::uint32_t at) {
    std::size_t next = 0;
    for (const Registers& registers : flow_.instructions[at].read) {
      const bool is_predicate = registers.file == File::p || registers.file == File::up;
      if (is_predicate && registers.at == kAtChoice) return values_.read(at)[next];
      next += registers.count;
    }
    return kNoValue;
  };
  return chosen_by(low) == chosen_by(high) && flow_.word(low).bit(kNegated) == flow_.word(high).bit(kNegated);
}

// Two words of the parameters that stand side by side.
std::optional<ExpressionId> Addresses::wide_param(std::uint32_t low, unsigned low_index, std::uint32_t high,
                                                  unsigned high_index) {
  const Instruction &of_low = flow_.instructions[low], &of_high = flow_.instructions[high];
  if (of_low.what != Class::constant_load || of_high.what != Class::constant_load || of_low.constant->index ||
      of_high.constant->index || of_low.constant->bank != 0 || of_high.constant->bank != 0)
    return std::nullopt;
  const std::int64_t at = std::int64_t{of_low.constant->offset} + 4 * low_index,
                     next = std::int64_t{of_high.constant->offset} + 4 * high_index;
  const auto is_word = [&](std::uint32_t load) { return flow_.word(load).bits(73, 3) >= 4; };
  if (next == at + 4 && is_word(low) && is_word(high) && at >= kernel_.params_at &&
      next + 4 <= std::int64_t{kernel_.params_at} + kernel_.param_bytes)
    return list_.leaf(ExpressionOp::param, at - kernel_.params_at, 64, 8);
  return std::nullopt;
}

// A 64-bit sum with something added to its upper half.
std::optional<ExpressionId> Addresses::wide_sum_above(ValueId low_half, std::uint32_t low, unsigned low_index,
                                                      std::uint32_t high, int depth) {
  const Instruction& of_high = flow_.instructions[high];
  const std::string_view name = of_high.name;
  const bool is_plain_sum = (name == "IADD3" || name == "UIADD3" || name == "VIADD" || name == "UVIADD" ||
                             name == "IADD" || name == "UIADD") &&
                            (flow_.word(high).bit(kExtended) == 0 || name == "VIADD" || name == "UVIADD");
  const bool is_product_sum =
      is_product(name) && (of_high.opcode & 0x7f) == 0x24 && flow_.word(high).bit(kExtended) == 0;
  if (!is_plain_sum && !is_product_sum) return std::nullopt;
  const SourceOperands h = operands_of(flow_, values_, high);
  const bool has_three = name == "IADD3" || name == "UIADD3";
  for (const SourceOperand* const each : {&h.a, &h.b, &h.c}) {
    if (each == &h.c && !has_three && !is_product_sum) continue;
    if (is_product_sum && each != &h.c &&
        !(each == &h.a ? list_.is_number(plain(high, h.b, depth), 1) : list_.is_number(plain(high, h.a, depth), 1)))
      continue;
    if (each->kind != SourceOperand::Kind::registers || each->negated) continue;
    std::uint32_t with = 0;
    unsigned with_index = 0;
    if (!is_written_by(each->values[0], with, with_index) || with != low || with_index != low_index + 1) continue;
    const auto whole = wide_result({low_half, each->values[0]}, depth);
    if (!whole) continue;
    ExpressionId rest = list_.number(0, 32);
    if (is_product_sum && each == &h.c) {
      rest = list_.make(ExpressionOp::multiply, plain(high, h.a, depth), plain(high, h.b, depth));
    } else {
      for (const SourceOperand* const other : {&h.a, &h.b, has_three || is_product_sum ? &h.c : nullptr})
        if (other != nullptr && other != each && !(is_product_sum && other != &h.c))
          rest = list_.add(rest, operand(high, *other, depth));
    }
    // Modulo 2^64 only the lower half of what is added there counts, whichever way it is widened.
    return list_.add(*whole, list_.make(ExpressionOp::shift_left, list_.make(ExpressionOp::widen_signed, rest),
                                        list_.number(32, 32)));
  }
  return std::nullopt;
}

ExpressionId Addresses::wide_written(Pair pair, int depth) {
  if (const auto extended = wide_extended(pair, depth)) return *extended;
  std::uint32_t low = 0, high = 0;
  unsigned low_index = 0, high_index = 0;
  if (!is_written_by(pair.low, low, low_index) || !is_written_by(pair.high, high, high_index)) return list_.unknown(64);
  if (low == high) {
    if (low_index % 2 != 0 || high_index != low_index + 1) return list_.unknown(64);
    const auto whole = wide_result(pair, depth);
    return whole ? *whole : list_.unknown(64);
  }
  if (const auto sum = wide_sum(pair, depth)) return *sum;
  if (const auto shifted = wide_shift(pair, depth)) return *shifted;
  const Instruction &of_low = flow_.instructions[low], &of_high = flow_.instructions[high];
  const SourceOperands l = operands_of(flow_, values_, low), h = operands_of(flow_, values_, high);
  const SourceOperand *const low_moved = moved(low, l), *const high_moved = moved(high, h);
  if (low_moved != nullptr && high_moved != nullptr && is_same_lane(low, high))
    return wide_operand(low, *low_moved, high, *high_moved, depth);
  const auto is_select = [](std::string_view name) { return name == "SEL" || name == "USEL"; };
  if (is_select(of_low.name) && is_select(of_high.name) && is_same_choice(low, high)) {
    const ExpressionId id = list_.choice(64, 0);
    const std::array<ExpressionId, 2> both{wide_operand(low, l.a, high, h.a, depth),
                                           wide_operand(low, l.b, high, h.b, depth)};
    list_.fill(id, both);
    return id;
  }
  if (const auto param = wide_param(low, low_index, high, high_index)) return *param;
  // The lower bits of an address cleared, the upper half as it was.
  if ((std::string_view(of_low.name) == "LOP3" || std::string_view(of_low.name) == "ULOP3") &&
      l.a.kind == SourceOperand::Kind::registers && l.b.kind == SourceOperand::Kind::immediate &&
      l.c.kind == SourceOperand::Kind::zero && flow_.word(low).bits(72, 8) == 0xc0 && l.b.immediate >> 31 != 0)
    return list_.make(ExpressionOp::bit_and, wide({l.a.values[0], pair.high}, depth + 1),
                      list_.number(static_cast<std::int32_t>(l.b.immediate), 64));
  if (const auto sum = wide_sum_above(pair.low, low, low_index, high, depth)) return *sum;
  return joined(of(pair.low, depth + 1), of(pair.high, depth + 1));
}

// By one instruction that has both halves as its result.
std::optional<ExpressionId> Addresses::wide_result(Pair pair, int depth) {
  std::uint32_t at = 0;
  unsigned index = 0;
  if (!is_written_by(pair.low, at, index) || flow_.relocated.contains(at)) return std::nullopt;
  const Instruction& instruction = flow_.instructions[at];
  const std::string_view name = instruction.name;
  const Word word = flow_.word(at);
  if (instruction.what == Class::constant_load) {
    const std::int64_t offset = std::int64_t{instruction.constant->offset} + 4 * index - kernel_.params_at;
    if (instruction.constant->index) return wide_param_at(at, offset, depth);
    if (instruction.constant->bank != 0 || offset < 0 || word.bits(73, 3) < 5 || offset + 8 > kernel_.param_bytes)
      return std::nullopt;
    return list_.leaf(ExpressionOp::param, offset, 64, 8);
  }
  if (instruction.what == Class::load && instruction.memory.size() == 1 && instruction.memory[0].space == Space::global)
    return list_.leaf(ExpressionOp::loaded, 0, 64);
  if (instruction.what == Class::load) return wide_loaded_back(at, pair, index, depth);
  if (instruction.what != Class::integer && instruction.what != Class::number) return std::nullopt;
  const SourceOperands from = operands_of(flow_, values_, at);
  if (is_product(name) && (instruction.opcode & 0x7f) == 0x25) {
    if (word.bit(kExtended) != 0) return std::nullopt;
    const ExpressionOp extend = word.bit(73) != 0 ? ExpressionOp::widen_signed : ExpressionOp::widen;
    const ExpressionId product = list_.make(ExpressionOp::multiply, list_.make(extend, plain(at, from.a, depth)),
                                            list_.make(extend, plain(at, from.b, depth)));
    const ExpressionId c = wide_operand(at, from.c, depth);
    return list_.add(product, from.c.negated ? list_.negate(c) : c);
  }
  const bool has_three = name == "IADD3" || name == "UIADD3";
  const bool has_two = (name == "IADD" || name == "UIADD") && word.bit(73) != 0;
  if ((has_three || has_two) && word.bit(kExtended) == 0) {
    ExpressionId all = list_.number(0, 64);
    for (const SourceOperand* const each : {&from.a, &from.b, has_three ? &from.c : nullptr}) {
      if (each == nullptr) continue;
      const ExpressionId one = wide_operand(at, *each, depth);
      all = list_.add(all, each->negated ? list_.negate(one) : one);
    }
    return all;
  }
  if ((name == "MOV" || name == "UMOV") && instruction.immediate) return list_.number(*instruction.immediate, 64);
  if (name == "CS2R") {
    constexpr std::uint64_t kZeroRegister = 255;
    if (word.bits(72, 8) == kZeroRegister) return list_.number(0, 64);
  }
  return std::nullopt;
}

// By an index into the parameters: which of them it is.
std::optional<ExpressionId> Addresses::wide_param_at(std::uint32_t at, std::int64_t offset, int depth) {
  const ConstantOperand& constant = *flow_.instructions[at].constant;
  constexpr unsigned kSizeAt = 73, kWide = 5;
  const auto index = values_.read(at, *constant.index);
  if (constant.bank != 0 || offset < 0 || offset >= kernel_.param_bytes || index.size() != 1 ||
      flow_.word(at).bits(kSizeAt, 3) < kWide)
    return std::nullopt;
  const ExpressionId id = narrowed(at, index[0], of(index[0], depth + 1), depth + 1);
  if (list_.is_unknown(id)) return std::nullopt;
  return list_.make(ExpressionOp::param_at, id, id, offset);
}

ExpressionId Addresses::wide_operand(std::uint32_t at, const SourceOperand& operand, int depth) {
  switch (operand.kind) {
    case SourceOperand::Kind::zero:
      return list_.number(0, 64);
    case SourceOperand::Kind::immediate:
      return list_.number(static_cast<std::int32_t>(operand.immediate), 64);
    case SourceOperand::Kind::constant: {
      const std::int64_t offset = std::int64_t{operand.offset} - kernel_.params_at;
      if (operand.bank != 0 || offset < 0 || offset + 8 > kernel_.param_bytes) return list_.unknown(64);
      return list_.leaf(ExpressionOp::param, offset, 64, 8);
    }
    case SourceOperand::Kind::registers:
      break;
  }
  if (!operand.is_wide()) return list_.make(ExpressionOp::widen, plain(at, operand, depth));
  const Pair pair{operand.values[0], operand.values[1]};
  return wide_narrowed(known_at(at), pair, wide(pair, depth + 1), depth + 1);
}

// A half from each of two operands.
ExpressionId Addresses::wide_operand(std::uint32_t low_at, const SourceOperand& low, std::uint32_t high_at,
                                     const SourceOperand& high, int depth) {
  using Kind = SourceOperand::Kind;
  if (low.kind == Kind::registers && high.kind == Kind::registers) {
    const Pair pair{low.values[0], high.values[0]};
    return wide_narrowed(known_at(low_at), pair, wide(pair, depth + 1), depth + 1);
  }
  if (low.kind == Kind::constant && high.kind == Kind::constant && low.bank == 0 && high.bank == 0 &&
      high.offset == low.offset + 4) {
    const std::int64_t offset = std::int64_t{low.offset} - kernel_.params_at;
    if (offset >= 0 && offset + 8 <= kernel_.param_bytes) return list_.leaf(ExpressionOp::param, offset, 64, 8);
  }
  // A half in a register and one in the constant bank, which are halves of the same all the same.
  const ExpressionId lower = plain(low_at, low, depth), upper = plain(high_at, high, depth);
  const Expression &l = list_[lower], &h = list_[upper];
  if (l.op == ExpressionOp::param && h.op == ExpressionOp::param && l.a == 4 && h.a == 4 && h.value == l.value + 4)
    return list_.leaf(ExpressionOp::param, l.value, 64, 8);
  if (l.op == ExpressionOp::low && h.op == ExpressionOp::high && l.a == h.a) return l.a;
  if (l.op == ExpressionOp::constant && h.op == ExpressionOp::constant)
    return list_.number(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(h.value) << 32 | static_cast<std::uint32_t>(l.value)), 64);
  return joined(lower, upper);
}

// What comparisons say of it: of all 64 bits, or of the 32 that were widened.
ExpressionId Addresses::wide_narrowed(std::span<const Comparison> comparisons, Pair pair, ExpressionId id, int depth) {
  using enum ExpressionRelation;
  if (list_[id].op == ExpressionOp::constant || depth > kMostDepth) return id;
  if (is_sign_of(pair.high, pair.low)) {
    const ExpressionId low = of(pair.low, depth + 1);
    const ExpressionId known = narrowed(comparisons, pair.low, low, depth);
    if (known != low) id = list_.make(ExpressionOp::widen_signed, known);
  }
  for (const Comparison& each : comparisons) {
    SourceOperand a_low, a_high, b_low, b_high;
    const SourceOperands last = operands_of(flow_, values_, each.instruction);
    const bool is_split = each.lower != Comparison::kNoInstruction;
    if (is_split) {
      const SourceOperands first = operands_of(flow_, values_, each.lower);
      a_low = first.a, b_low = first.b, a_high = last.a, b_high = last.b;
    } else if (!last.a.is_wide() && !last.b.is_wide()) {
      continue;
    }
    const auto is_it = [&](const SourceOperand& whole, const SourceOperand& low, const SourceOperand& high) {
      if (!is_split) return whole.values[0] == pair.low && whole.values[1] == pair.high;
      return low.values[0] == pair.low && high.values[0] == pair.high;
    };
    const bool is_first = is_it(last.a, a_low, a_high), is_second = is_it(last.b, b_low, b_high);
    if (is_first == is_second) continue;
    constexpr ExpressionRelation kSwapped[] = {greater, at_least, less, at_most, equal, not_equal};
    const ExpressionRelation relation = is_first ? each.relation : kSwapped[static_cast<unsigned>(each.relation)];
    ExpressionId than = 0;
    if (!is_split)
      than = wide_operand(each.instruction, is_first ? last.b : last.a, depth + 1);
    else
      than =
          wide_operand(each.lower, is_first ? b_low : a_low, each.instruction, is_first ? b_high : a_high, depth + 1);
    if (list_.is_unknown(than)) continue;
    id = list_.make(ExpressionOp::where, id, than,
                    static_cast<std::int64_t>(relation) + (each.is_signed ? kSignedRelation : 0));
  }
  return id;
}

}  // namespace nimble::code::sass
