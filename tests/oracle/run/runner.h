// Runs a random program on the CUDA driver.
#pragma once

#include <cstdint>

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

// The digest of all that the program computed: of what the host read on the way, and of all memory at the end. Ends the
// process with a line on stderr where a call fails. The images stand beside the executable.
std::uint64_t run_program(const Program& program);

}  // namespace nimble::oracle
