// Finds memory of a step that ops of other streams touch while it runs, without being part of any step: they may be
// polling it, or leaving data for the step to find.
//
// Onlookers are ops among the steps, on another stream than some op of a step, that the program has not ordered with
// that op, if the two touch the same memory and one of them writes. What an onlooker sees of the step keeps the
// program's order (analyzer/order/communication.h). Ops before all steps or after them are not considered, because it
// is not known when they were over. A kernel is assumed to read and write what its parameters lead to; for other ops
// than copies and sets, what the trace says they touch.
//
// Near linear in ops. Pure; one thread. No errors.
#pragma once

#include <span>

#include "analyzer/access/access.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

// Per object of `objects`, which are those of `step`: 1 if an onlooker touches it. Empty if there is none. `step` is
// one of `kinds`, all kinds of step of the program.
std::vector<std::uint8_t> watched_objects(const Trace& trace, const ObjectTable& table,
                                          std::span<const Step* const> kinds, const Step& step,
                                          const StepAccesses& accesses, const StepObjects& objects);

}  // namespace nimble::analyzer
