// The body of one PTX function as a list of instructions, whose names are resolved in their scopes.
//
// Plain data that refers to the text, which must outlive it. What the reader does not understand is an error of the
// body; it never guesses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/ptx/module.h"

namespace nimble::code {

inline constexpr std::uint32_t kNoSymbol = 0xffffffffu;

// A name that a body uses: its own registers and variables, its parameters, or something from outside (variables and
// functions of the module, special registers).
struct PtxSymbol {
  enum class Kind : std::uint8_t { reg, predicate, param, local, shared, label, outside };
  std::string_view name;
  Kind kind = Kind::outside;
  unsigned bits = 0;        // of registers
  std::uint64_t bytes = 0;  // for parameters and local variables; 0 if that is not given
};

struct PtxOperand {
  // vector: {a,b}, and a|b; list: the parentheses of a call; address: [a+4], with everything else in the brackets.
  enum class Kind : std::uint8_t { symbol, number, vector, list, address };
  Kind kind = Kind::number;
  std::uint32_t symbol = kNoSymbol;  // of a symbol, and of an address that has one
  std::int64_t value = 0;            // of a number, and what is added to a symbol
  bool odd = false;                  // a floating-point number, or an address with more than a symbol and a number
  std::vector<PtxOperand> parts;
};

struct PtxInstruction {
  std::string_view opcode;  // with all that is attached to it: ld.global.nc.v4.f32
  std::vector<PtxOperand> operands;
  // It runs if this predicate is true (false, if it is negated): @%p, @!%p.
  std::uint32_t predicate = kNoSymbol;
  bool negated = false;
};

// A place that branches lead to: before the instruction with this index.
struct PtxLabel {
  std::uint32_t symbol = kNoSymbol;
  std::size_t before = 0;
};

struct PtxBody {
  std::string error;
  std::vector<PtxSymbol> symbols;  // first results, then params, in their order
  std::vector<PtxInstruction> instructions;
  std::vector<PtxLabel> labels;  // ascending by place
  bool jumps = false;            // it has tables of labels: a branch may lead anywhere
};

PtxBody read_ptx_body(const PtxFunction& function);

}  // namespace nimble::code
