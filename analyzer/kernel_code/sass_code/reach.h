// Which instructions of a kernel can be reached, and where control goes after each.
//
// A call puts nothing anywhere: a return goes by a register into which the caller has put where to. So a call from
// which nothing returns is a jump, and compilers write one where a branch would be too short. Which calls return is
// found here from the code they lead to; that returns go where this assumes is for returns.h to check, and so is, with
// it, that calls and jumps were told apart. A pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analyzer/kernel_code/sass/instruction.h"
#include "analyzer/kernel_code/sass_code/kernel.h"

namespace nimble::code::sass {

// Where control goes after an instruction that ends a block.
struct End {
  bool is = false;
  bool falls_through = false;
  bool returns = false;
  std::vector<std::uint32_t> to;      // instructions
  std::optional<std::uint32_t> call;  // the instruction at which the callee begins
};

struct Reach {
  std::string error;
  std::vector<Instruction> instructions;  // by their place in the text; those that are not reached are not decoded
  std::vector<End> ends;
  std::vector<bool> reached;
  std::set<std::uint32_t> leaders;  // instructions at which blocks begin
};

Reach reach_of(const Kernel& kernel);

// The number that an instruction puts into its register; nothing where it is none that is always the same.
bool constant_of(const Instruction& instruction, std::uint32_t& value);
// The registers that an instruction copies into those that it writes, for each thread its own; null where it is no
// copy, or one under a condition.
const Registers* copied_by(const Instruction& instruction, Word word);

}  // namespace nimble::code::sass
