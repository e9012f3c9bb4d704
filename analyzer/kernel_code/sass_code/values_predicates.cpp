// Which predicates are always the same: compilers keep them as bits of registers when there are too few.
//
// P2R puts several there, a selection between numbers one, and so does an instruction that sets a bit under a
// condition; a bit is tested, or R2P takes several back. In between other bits of the register are set and cleared.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/sass_code/values.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kP2r = 0x803, kR2p = 0x804, kAtFirstPredicate = 81;
constexpr unsigned kAtInput = 87, kNegatesInput = 90, kTrue = 7, kJoinsByAnd = 80;
constexpr unsigned kMaskAt = 32, kByteAt = 76;  // of P2R and R2P
constexpr unsigned kBits = 32;
constexpr int kMostDepth = 16, kMostSteps = 2048;

bool is_register(const Registers& registers) { return registers.file == File::r || registers.file == File::ur; }
// A number that an instruction makes, where it runs.
std::optional<std::uint32_t> number_of(Instruction instruction) {
  std::uint32_t number = 0;
  instruction.guard = {};
  return constant_of(instruction, number) ? std::optional(number) : std::nullopt;
}

bool is_copy(Instruction instruction, Word word) {
  instruction.guard = {};
  return copied_by(instruction, word) != nullptr;
}

bool is_one_of(std::string_view name, std::string_view one, std::string_view other) {
  return name == one || name == other;
}

}  // namespace

// The value that an instruction reads at that bit into one register; kNoValue where that is the register of zeros.
ValueId Values::register_at(std::uint32_t at, unsigned bit) const {
  std::size_t next = 0;
  for (const Registers& registers : flow_.instructions[at].read) {
    if (registers.at == bit && is_register(registers)) return read(at)[next];
    next += registers.count;
  }
  return kNoValue;
}

// By a predicate the one, else the other.
Values::Bit Values::chosen(Bit one, Bit other, const Fact& fact) {
  using enum Bit::Kind;
  // Where the one is chosen it is known what the predicate is.
  const auto settle = [&](Bit& bit, bool is_true) {
    if (bit.kind == predicate && bit.value == fact.predicate) bit = {fixed, bit.is_one == is_true};
  };
  settle(one, fact.is_true);
  settle(other, !fact.is_true);
  if (one == other) return one;
  if (one.kind != fixed || other.kind != fixed) return {};
  return {predicate, one.is_one == fact.is_true, fact.predicate};
}

// One where the predicate is true.
Values::Bit Values::bit_by(ValueId predicate) const {
  const Fact fact = plain({predicate, true});
  return {Bit::Kind::predicate, fact.is_true, fact.predicate};
}

// A function of three bits, by the table of LOP3. Most registers are read for other bits of them.
Values::Bit Values::by_table(unsigned table, std::array<Bit, 3> bits, int depth) {
  using enum Bit::Kind;
  constexpr std::array<unsigned, 3> kOnes{0xf0, 0xcc, 0xaa};  // rows in which an input is one
  unsigned rows_left = 0xff;
  for (std::size_t i = 0; i < bits.size(); ++i)
    if (bits[i].kind == fixed) rows_left &= bits[i].is_one ? kOnes[i] : ~kOnes[i];
  std::size_t needed = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i].kind == fixed) continue;
    const unsigned by = 4u >> i;  // from a row to the one where only this input is another
    bool counts = false;
    for (unsigned row = 0; row < 8; ++row)
      counts |= (rows_left >> row & 1) != 0 && (table >> row & 1) != (table >> (row ^ by) & 1);
    if (!counts) bits[i] = {fixed, false};
    needed += counts ? 1 : 0;
  }
  if (needed > 1)
    for (Bit& bit : bits) bit = settled(bit, depth);
  // Those that are not fixed, each once; what is not known is another each time.
  std::vector<Bit> symbols;
  std::array<std::size_t, 3> symbol{};
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i].kind == fixed) continue;
    const auto is_same = [&](const Bit& each) {
      return each.kind == bits[i].kind && each.value == bits[i].value && each.bit == bits[i].bit;
    };
    const auto found = bits[i].kind == unknown ? symbols.end() : std::ranges::find_if(symbols, is_same);
    symbol[i] = static_cast<std::size_t>(found - symbols.begin());
    if (found == symbols.end()) symbols.push_back(bits[i]);
  }
  unsigned outcomes = 0;  // by what the symbols are
  const unsigned rows = 1u << symbols.size();
  for (unsigned row = 0; row < rows; ++row) {
    unsigned index = 0;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const bool is_one = bits[i].kind == fixed ? bits[i].is_one : ((row >> symbol[i] & 1) != 0) == bits[i].is_one;
      index = index * 2 + (is_one ? 1 : 0);
    }
    outcomes |= (table >> index & 1) << row;
  }
  const unsigned all = (1u << rows) - 1;
  if (outcomes == 0 || outcomes == all) return {fixed, outcomes != 0};
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    unsigned holds = 0;  // rows in which this symbol is one
    for (unsigned row = 0; row < rows; ++row) holds |= (row >> i & 1) << row;
    if (symbols[i].kind == unknown || (outcomes != holds && outcomes != (all ^ holds))) continue;
    return {symbols[i].kind, outcomes == holds, symbols[i].value, symbols[i].bit};
  }
  return {};
}

// A bit of what an instruction puts into its one register, under whatever condition that is.
Values::Bit Values::bit_of_result(std::uint32_t at, unsigned bit, int depth) {
  using enum Bit::Kind;
  const Instruction& instruction = flow_.instructions[at];
  const Word word = flow_.word(at);
  const std::string_view name = instruction.name;
  if (flow_.relocated.contains(at)) return {};
  const auto kept_from = [&](unsigned place, unsigned which) {
    const ValueId value = register_at(at, place);
    return value == kNoValue ? Bit{fixed, false} : Bit{kept, true, value, which};
  };
  const unsigned form = instruction.opcode >> 9 & 7;
  const auto second = [&]() {
    if (form == 4 && instruction.immediate) return Bit{fixed, (*instruction.immediate >> bit & 1) != 0};
    return form == 1 ? kept_from(kAtB, bit) : Bit{};
  };
  if (const auto number = number_of(instruction)) return {fixed, (*number >> bit & 1) != 0};
  if (is_copy(instruction, word)) return {kept, true, read(at)[0], bit};
  if (instruction.opcode == kP2r) {
    const auto first = static_cast<unsigned>(8 * word.bits(kByteAt, 2));
    const bool is_put = bit >= first && (word.bits(kMaskAt, kBits) >> (bit - first) & 1) != 0;
    if (!is_put) return kept_from(kAtA, bit);
    std::size_t next = 0;
    for (const Registers& registers : instruction.read) {
      if (registers.file == File::p && registers.first == bit - first) return bit_by(read(at)[next]);
      next += registers.count;
    }
    return {};
  }
  if (is_one_of(name, "LOP3", "ULOP3"))
    return by_table(static_cast<unsigned>(word.bits(72, 8)), {kept_from(kAtA, bit), second(), kept_from(kAtC, bit)},
                    depth);
  if (is_one_of(name, "SEL", "USEL")) {
    std::size_t next = 0;
    for (const Registers& registers : instruction.read) {
      if (registers.at == kAtInput && !is_register(registers))
        return chosen(settled(kept_from(kAtA, bit), depth), settled(second(), depth),
                      plain({read(at)[next], word.bit(kNegatesInput) == 0}));
      next += registers.count;
    }
    return {};
  }
  if (is_one_of(name, "PRMT", "UPRMT") && form == 4 && instruction.immediate && word.bits(72, 3) == 0) {
    constexpr unsigned kByte = 8, kSign = 8, kSecond = 4;
    const unsigned selected = *instruction.immediate >> 4 * (bit / kByte) & 15;
    const unsigned which = selected % kSecond * kByte + ((selected & kSign) != 0 ? kByte - 1 : bit % kByte);
    return kept_from((selected & kSecond) != 0 ? kAtC : kAtA, which);
  }
  return {};
}

// Where that is a bit of another value, what is in that.
Values::Bit Values::settled(const Bit& bit, int depth) {
  if (bit.kind != Bit::Kind::kept) return bit;
  Bit found = bit_of(bit.value, bit.bit, depth + 1);
  if (!bit.is_one) found.is_one = !found.is_one;
  return found;
}

Values::Bit Values::bit_of(ValueId value, unsigned bit, int depth) {
  using enum Bit::Kind;
  if (depth > kMostDepth) return {};
  const std::uint64_t first = std::uint64_t{value} << 8 | bit;
  bool is_negated = false;
  Bit result;
  while (++steps_ < kMostSteps) {
    const std::uint64_t key = std::uint64_t{value} << 8 | bit;
    if (const auto found = bits_.find(key); found != bits_.end()) {
      result = found->second;
      break;
    }
    const Value& each = values_[value];
    Bit here;
    if (each.kind == Value::Kind::written) {
      here = bit_of_written(value, bit, depth);
    } else if (each.kind == Value::Kind::choice && each.predicate != kNoValue) {
      const auto from = choices(value);
      const bool is_written = values_[from[0]].kind == Value::Kind::written;
      const Bit one = is_written ? bit_of_written(from[0], bit, depth) : Bit{kept, true, from[0], bit};
      here = {kept, true, from[1], bit};
      if (one != here) here = chosen(settled(one, depth), settled(here, depth), {each.predicate, each.if_true});
    } else if (each.kind == Value::Kind::choice) {
      here = bit_of_choice(value, bit, depth);
    }
    result = here;
    if (here.kind != kept) break;
    value = here.value;
    bit = here.bit;
    is_negated ^= !here.is_one;
    result = {};
  }
  if (is_negated) result.is_one = !result.is_one;
  if (result.kind == unknown) result = {};
  // What is told in terms of what is still looked at ends with that.
  bits_[first] = result;
  if (result.kind == itself) in_terms_.push_back(first);
  return result;
}

Values::Bit Values::bit_of_written(ValueId value, unsigned bit, int depth) {
  const Value& each = values_[value];
  const auto& written = flow_.instructions[each.instruction].written;
  const auto* const first = std::ranges::find_if(written, is_register);
  const bool is_one = std::ranges::count_if(written, is_register) == 1 && first->count == 1;
  return is_one && each.variable < kFirstPredicate ? bit_of_result(each.instruction, bit, depth) : Bit{};
}

// Where ways meet: what it is on each of them, but where it is what it was there.
Values::Bit Values::bit_of_choice(ValueId choice, unsigned bit, int depth) {
  if (entry_choices_.contains(choice) || returned_.contains(choice)) return {};
  const Bit it{Bit::Kind::itself, true, choice};
  const std::uint64_t key = std::uint64_t{choice} << 8 | bit;
  bits_[key] = it;
  std::optional<Bit> all;
  for (const ValueId from : choices(choice)) {
    const Bit source = bit_of(from, bit, depth + 1);
    if (source == it) continue;
    if (all && *all != source) all = Bit{};
    if (!all) all = source;
    if (*all == Bit{}) break;
  }
  const Bit found = all.value_or(Bit{});
  bits_[key] = found;
  if (found.kind == Bit::Kind::itself) in_terms_.push_back(key);
  return found;
}

// The predicate, or its opposite, that holds where this has any bit that is one; not where it always has.
Values::Bit Values::predicate_of(const std::function<Bit(unsigned bit)>& bit_at) {
  Bit found;
  for (unsigned bit = 0; bit < kBits; ++bit) {
    const Bit each = bit_at(bit);
    if (each.kind == Bit::Kind::fixed && !each.is_one) continue;
    if (each.kind != Bit::Kind::predicate || (found.kind == Bit::Kind::predicate && found != each)) return {};
    found = each;
  }
  return found;
}

void Values::make_same(ValueId predicate, const Bit& as) {
  if (as.kind != Bit::Kind::predicate) return;
  if (as.is_one) return make_same(predicate, as.value);
  const Fact fact = plain({as.value, false});
  if (same_as_[predicate] != predicate || fact.predicate == predicate) return;
  if (fact.is_true) return make_same(predicate, fact.predicate);
  opposites_.emplace(predicate, fact.predicate);
}

// What is asked for by itself, not in the course of another question.
Values::Bit Values::ask(std::uint32_t at, ValueId value, unsigned bit) {
  steps_ = 0;
  const Bit found = settled(value == kNoValue ? bit_of_result(at, bit, 0) : Bit{Bit::Kind::kept, true, value, bit}, 0);
  for (const std::uint64_t key : in_terms_) bits_.erase(key);
  in_terms_.clear();
  return found.kind == Bit::Kind::itself ? Bit{} : found;
}

void Values::find_equal_predicates() {
  bits_.clear();
  for (const std::uint32_t at : order_) {
    const Instruction& instruction = flow_.instructions[at];
    if (instruction.guard.when != Guard::When::always) continue;
    if (instruction.copies_predicate && instruction.written.size() > 0 &&
        instruction.written[0].at == kAtFirstPredicate) {
      make_same(this->written(at)[0], read(at)[0]);
      continue;
    }
    const Word word = flow_.word(at);
    const bool is_test = instruction.is_not_zero && instruction.read.size() == 1;
    // Or joined with what is always false, and with what is always true.
    const bool is_neutral = word.bits(kAtInput, 3) == kTrue && word.bit(kJoinsByAnd) != word.bit(kNegatesInput);
    const bool is_masked = is_one_of(instruction.name, "LOP3", "ULOP3") && is_neutral;
    if (!is_test && !is_masked && instruction.opcode != kR2p) continue;
    if (is_test && !is_register(instruction.read[0])) continue;
    const ValueId from = is_test ? read(at)[0] : instruction.opcode == kR2p ? register_at(at, kAtA) : kNoValue;
    if (from == kNoValue && !is_masked) continue;
    std::size_t next = 0;
    for (const Registers& registers : instruction.written) {
      const ValueId id = this->written(at)[next];
      next += registers.count;
      if (instruction.opcode == kR2p) {
        make_same(id, ask(at, from, registers.first + static_cast<unsigned>(8 * word.bits(kByteAt, 2))));
      } else if (registers.at == kAtFirstPredicate && (registers.file == File::p || registers.file == File::up)) {
        make_same(id, predicate_of([&](unsigned bit) { return ask(at, from, bit); }));
      }
    }
  }
}

}  // namespace nimble::code::sass
