#include "analyzer/kernel_code/sass_expressions/operands.h"

#include <string_view>

namespace nimble::code::sass {
namespace {

constexpr unsigned kNegatesA = 72, kNegatesB = 63, kNegatesC = 75;

SourceOperand register_at(const Instruction& instruction, const Values& values, std::uint32_t at, unsigned bit) {
  SourceOperand operand;
  for (const Registers& registers : instruction.read) {
    if (registers.at != bit || (registers.file != File::r && registers.file != File::ur)) continue;
    const auto read = values.read(at, registers);
    if (read.empty()) continue;
    operand.kind = SourceOperand::Kind::registers;
    operand.values[0] = read[0];
    if (read.size() > 1) operand.values[1] = read[1];
  }
  return operand;
}

}  // namespace

SourceOperands operands_of(const ControlFlow& flow, const Values& values, std::uint32_t at) {
  const Instruction& instruction = flow.instructions[at];
  const Word word = flow.word(at);
  SourceOperands result;
  result.a = register_at(instruction, values, at, kAtA);
  result.a.negated = word.bit(kNegatesA) != 0;
  SourceOperand second = register_at(instruction, values, at, kAtB), third = register_at(instruction, values, at, kAtC);
  const unsigned form = instruction.opcode >> 9 & 7;
  if (instruction.immediate || form == 2 || form == 4) {
    second = {};
    second.kind = SourceOperand::Kind::immediate;
    second.immediate = static_cast<std::uint32_t>(word.bits(32, 32));
  } else {
    if ((form == 3 || form == 5) && instruction.constant) {
      second = {};
      second.kind = SourceOperand::Kind::constant;
      second.bank = instruction.constant->bank;
      second.offset = instruction.constant->offset;
    }
    second.negated = word.bit(kNegatesB) != 0;
  }
  third.negated = word.bit(kNegatesC) != 0;
  // Those with two operands have the second always in the same place.
  const std::string_view name = instruction.name;
  const bool has_two = name == "SEL" || name == "USEL" || name == "MOV" || name == "UMOV";
  const bool is_swapped = (form == 2 || form == 3 || form == 7) && !has_two;
  result.b = is_swapped ? third : second;
  result.c = is_swapped ? second : third;
  return result;
}

FixedPredicate fixed_predicate(Word word, unsigned at, unsigned negated) {
  constexpr unsigned kTrue = 7;
  return {word.bits(at, 3) == kTrue, word.bit(negated) == 0};
}

}  // namespace nimble::code::sass
