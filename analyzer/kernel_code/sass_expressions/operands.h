// The operands of an instruction of arithmetic: where they stand, by the form of its opcode, and what negates them.
// Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/values.h"

namespace nimble::code::sass {

struct SourceOperand {
  enum class Kind : std::uint8_t { zero, registers, immediate, constant };
  Kind kind = Kind::zero;
  bool negated = false;         // or complemented, where the operation is logical
  std::uint32_t immediate = 0;  // extended by its sign to 64 bits
  std::int32_t offset = 0;      // constant: in its bank
  std::uint8_t bank = 0;
  std::array<ValueId, 2> values{kNoValue, kNoValue};  // registers: one or two
  bool is_wide() const { return values[1] != kNoValue; }
};

struct SourceOperands {
  SourceOperand a, b, c;
};

// Instructions that may have a part in a value of 64 bits, by their names.
inline bool is_shift(std::string_view name) { return name == "SHF" || name == "USHF"; }
inline bool is_product(std::string_view name) { return name == "IMAD" || name == "UIMAD"; }

SourceOperands operands_of(const ControlFlow& flow, const Values& values, std::uint32_t instruction);

// A predicate that is read: whether it is the one that always holds, and which value it has there.
struct FixedPredicate {
  bool is_fixed = false, holds = false;
};
FixedPredicate fixed_predicate(Word word, unsigned at, unsigned negated);

}  // namespace nimble::code::sass
