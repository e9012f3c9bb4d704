// Draws a random program from a seed; see program.h.
#pragma once

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

// As it was drawn: the ops of several streams are not yet ordered.
Program draw_program(std::uint64_t seed, bool several_streams = false);

}  // namespace nimble::oracle
