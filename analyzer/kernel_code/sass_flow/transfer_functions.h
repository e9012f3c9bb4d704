// The transfer functions of the data flow: through which operands of an instruction an address may pass to its result.
// One function for each kind of operation that the flow knows; the results of all others are mere numbers.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "analyzer/kernel_code/sass/instruction.h"
#include "analyzer/kernel_code/sass_flow/roots.h"

namespace nimble::code::sass {

// What is in register `index` of the operand that stands at that bit; nothing read there is a number, too.
using OperandAt = std::function<Content(unsigned at, unsigned index)>;
// The same of the instruction's constant operand.
using ConstantAt = std::function<Content(unsigned index)>;

// What a number, an integer or a predicate instruction puts into its `count` registers.
std::vector<Content> computed(const Instruction& instruction, Word word, unsigned count, Contents& contents,
                              const OperandAt& operand, const ConstantAt& constant);

}  // namespace nimble::code::sass
