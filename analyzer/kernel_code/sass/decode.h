// Decodes machine code of sm_75 to sm_121, one instruction at a time, by the table in opcodes.def.
//
// Where the encoding is from, and how it was measured, is said there. A pure function of its input, which may be
// anything; any thread. What the table does not hold for this architecture is Class::unknown, with no list to rely on.
#pragma once

#include "analyzer/kernel_code/sass/instruction.h"

namespace nimble::code::sass {

// `arch`: 90 for sm_90. Of architectures between two that were measured, and of the same family, what both agree on
// holds.
Instruction decode(Word word, unsigned arch);

}  // namespace nimble::code::sass
