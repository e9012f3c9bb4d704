// What an op of a random program touches.
#pragma once

#include <vector>

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

Place at_step(Place place, std::uint32_t step);

// Whether the op is part of this step.
inline bool in_step(const Op& op, std::uint32_t step) { return op.skip == 0 || step % op.skip != op.skip - 1; }

// Elements that a launch works on.
inline std::uint32_t count_at(const Op& op, std::uint32_t step) {
  return op.shrinks && step % 2 == 1 ? (op.count + 1) / 2 : op.count;
}

// Whether it does not touch the same in all steps.
bool varies(const Op& op);

// In that step, whether or not it is part of it. Of memory that is allocated or freed: all of it is written.
std::vector<Range> touched(const Program& program, const Op& op, std::uint32_t step);

// In all steps together.
std::vector<Range> touched(const Program& program, const Op& op);

// Whether an op that touches these ranges does so in no order of its own: nothing that it writes is read in another
// place of the same launch.
bool apart(const Op& op, const std::vector<Range>& ranges);

}  // namespace nimble::oracle
