// The events by which a program of several streams orders what conflicts.
#pragma once

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

// Puts records and waits between the ops of a step, so that every two conflicting ops of different streams keep their
// listed order, and every step is ordered after the previous one. Does nothing for a single stream.
void order_streams(Program& program);

// The same for the ops of one changed step, which has its own records and waits, or some of them: adds the missing
// ones. All streams are ordered with each other before the step, and so they are after it. `ranges` are those of this
// step. Stream `program.streams` is the spare one. Events from `program.events` on are used; returns how many.
std::uint32_t mend_order(const Program& program, std::vector<Op>& ops);

// Whether the two must stay in order: they touch a common byte, and one of them writes it.
bool conflict(const Op& a, const Op& b);

}  // namespace nimble::oracle
