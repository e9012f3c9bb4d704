// Which memory of a step ops of other streams touch while it runs, that are none of any step's: somebody who polls, or
// leaves something for the step to find.
//
// Looked for are ops among the steps, on another stream than a step's op, that the program has not put in order with
// that op, where the two touch the same memory and one of them writes. What such an op sees of the step keeps the
// program's order (analyzer/order/communication.h). Of ops before all steps or after them no one knows when they were
// over. A kernel is taken to read and write what its parameters lead to, and what else is not a copy or a set what the
// trace says that it touches.
//
// Near linear in ops. Pure; one thread. No errors.
#pragma once

#include <span>

#include "analyzer/access/access.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

// Sets StepObject::looked_at of `objects`, which are those of `step`, one of `kinds`.
void find_onlookers(const Trace& trace, const ObjectTable& table, std::span<const Step* const> kinds, const Step& step,
                    const StepAccesses& accesses, StepObjects& objects);

}  // namespace nimble::analyzer
