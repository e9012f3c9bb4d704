#include "analyzer/kernel_code/sass_code/known_places.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/sass_code/bank0.h"

namespace nimble::code::sass {
namespace {

constexpr std::size_t kMostChoices = 4096;  // looked through for one known place
constexpr int kMostDepth = 32;

}  // namespace

std::optional<std::int64_t> KnownPlaces::in_local(std::uint32_t at, const MemoryOperand& operand) const {
  if (operand.space != Space::local || operand.uniform || !operand.base || !operand.has_offset) return std::nullopt;
  const auto base = values_.read(at, *operand.base);
  if (base.empty()) return std::nullopt;
  const Known place = known(base[0]);
  if (place.base != Known::Base::stack) return std::nullopt;
  return place.offset + operand.offset;
}

std::optional<std::int64_t> KnownPlaces::in_params(std::uint32_t at, const Registers& registers) const {
  const auto values = values_.read(at, registers);
  if (values.empty()) return std::nullopt;
  const Known place = known(values[0]);
  return place.base == Known::Base::params ? std::optional(place.offset) : std::nullopt;
}

// A choice among what is all the same place is that; choices that lead to each other are looked through together.
KnownPlaces::Known KnownPlaces::known(ValueId value, int depth) const {
  if (depth > kMostDepth) return {};
  const auto all = values_.all();
  if (all[value].kind == Value::Kind::initial) return {};
  if (all[value].kind == Value::Kind::written) return known_result(all[value], depth);
  std::vector<ValueId> open{value}, seen{value};
  std::optional<Known> found;
  while (!open.empty()) {
    const ValueId choice = open.back();
    open.pop_back();
    for (const ValueId from : values_.choices(choice)) {
      if (all[from].kind == Value::Kind::choice) {
        if (std::find(seen.begin(), seen.end(), from) != seen.end()) continue;
        if (seen.size() == kMostChoices) return {};
        seen.push_back(from);
        open.push_back(from);
        continue;
      }
      const Known one = known(from, depth + 1);
      if (one.base == Known::Base::none || (found && !(*found == one))) return {};
      found = one;
    }
  }
  return found.value_or(Known{});
}

KnownPlaces::Known KnownPlaces::known_result(const Value& value, int depth) const {
  const std::uint32_t at = value.instruction;
  const Instruction& instruction = flow_.instructions[at];
  if (instruction.written.size() == 0) return {};
  const Registers& first = instruction.written[0];
  if (value.variable != variable_of(first.file, first.first)) return {};  // not the lower half
  const std::string_view name = instruction.name;
  // A product of zeros, and a constant that is added.
  constexpr unsigned kLowProduct = 0x24, kThirdIsConstant = 3, kWithCarry = 74, kNegated = 75;
  const bool is_added_to_zero = name == "IMAD" && instruction.read.size() == 0 && instruction.constant &&
                                (instruction.opcode & 0x7f) == kLowProduct &&
                                (instruction.opcode >> 9 & 7) == kThirdIsConstant &&
                                flow_.word(at).bit(kWithCarry) == 0 && flow_.word(at).bit(kNegated) == 0;
  const bool is_move =
      name == "MOV" || name == "UMOV" || name == "R2UR" || is_added_to_zero || instruction.what == Class::constant_load;
  const bool is_sum = name == "IADD3" || name == "UIADD3" || name == "VIADD" || name == "UVIADD" || name == "IADD" ||
                      (name == "IMAD" && instruction.read.size() == 1);
  if (!is_move && !is_sum) return {};
  if (instruction.constant) {
    const Bank0 places = bank0_of(kernel_.arch);
    if (instruction.constant->bank != 0 || instruction.constant->index || instruction.read.size() != 0) return {};
    if (instruction.constant->offset == places.stack) return {Known::Base::stack, 0};
    if (instruction.constant->offset == places.params) return {Known::Base::params, 0};
    if (instruction.constant->offset == places.bank) return {Known::Base::params, -std::int64_t{kernel_.params_at}};
    return {};
  }
  // One register, and what is added to it; carries and negations would be further operands, or other bits.
  std::optional<Registers> only;
  for (const Registers& registers : instruction.read) {
    if (registers.file != File::r && registers.file != File::ur) continue;
    if (only) return {};
    only = registers;
  }
  if (!only) return {};
  if (is_sum && name == "IMAD" && only->at != kAtC) return {};  // a product
  // Of IADD3 these negate an operand, or add a carry; bit 63 does where it is no immediate's.
  for (const unsigned bit : {63u, 72u, 74u, 75u})
    if (name != "MOV" && name != "R2UR" && flow_.word(at).bit(bit) != 0 && (bit != 63 || !instruction.immediate))
      return {};
  const auto read = values_.read(at, *only);
  if (read.empty()) return {};
  Known place = known(read[0], depth + 1);
  if (place.base != Known::Base::none && is_sum && name != "IMAD")
    place.offset += static_cast<std::int32_t>(instruction.immediate.value_or(0));
  return place;
}

}  // namespace nimble::code::sass
