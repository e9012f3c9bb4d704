// The events by which a program of several streams orders what conflicts.
#pragma once

#include "tests/oracle/program.h"

namespace nimble::oracle {

// Puts records and waits between the ops of a step, so that every two ops of different streams that conflict are in the
// order in which they stand, and every step is behind the one before it. Does nothing where there is one stream.
void order_streams(Program& program);

// Whether the two must stay in order: they touch a common byte, and one of them writes it.
bool conflict(const Op& a, const Op& b);

}  // namespace nimble::oracle
