// The events by which a program of several streams orders what conflicts.
#pragma once

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

// Puts records and waits between the ops of a step, so that every two ops of different streams that conflict are in the
// order in which they stand, and every step is behind the one before it. Does nothing where there is one stream.
void order_streams(Program& program);

// The same for the ops of one step in which something is not as it was drawn, and which has its own records and waits,
// or some of them: puts in what is missing. All streams are ordered with each other before the step, and so they are
// behind it. `ranges` are those of this step. Stream `program.streams` is the spare one. Events from
// `program.events` on are used; returns how many.
std::uint32_t mend_order(const Program& program, std::vector<Op>& ops);

// Whether the two must stay in order: they touch a common byte, and one of them writes it.
bool conflict(const Op& a, const Op& b);

}  // namespace nimble::oracle
