// Names that compilers give to variables that are never written.
//
// Pure; any thread. No errors.
#pragma once

#include <string_view>

namespace nimble::code {

// Names of the tables of NVIDIA's mathematical functions, of string literals, and of function names, by nvcc or LLVM
// (Triton, and with it torch.compile: its mathematical functions name what they were compiled for). Such names are
// reserved.
bool names_constant(std::string_view name);

}  // namespace nimble::code
