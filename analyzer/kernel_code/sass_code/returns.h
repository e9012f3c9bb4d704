// Whether every call returns to the instruction after it, as the control flow assumes.
//
// There is no stack of return addresses: a caller puts a number into a register, and the callee's return goes by it,
// from wherever it has put it. So each return's register must hold, however it got there, what was in one register when
// the function began; and that must hold, at every call, the place after that call: as an offset, or, of code that was
// written by hand, as an address that LEPC has put there. A pure function.
#pragma once

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/values.h"

namespace nimble::code::sass {

bool calls_come_back(const ControlFlow& flow, const Values& values);

}  // namespace nimble::code::sass
