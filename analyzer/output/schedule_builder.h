// Puts the schedule together from an analysis.
//
// Pure: the same analysis gives the same schedule. The result owns all it holds, and no address of the recorded
// process. No errors; the caller has seen that Analysis::status allows a schedule.
#pragma once

#include "analyzer/analysis.h"
#include "analyzer/output/schedule_variants.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

// Of all kinds of step.
Schedule build_schedule(const Analysis& analysis);
// Of this kind alone.
KindSchedule build_kind_schedule(const Analysis& analysis);

// Per access of the step (as in StepAccesses::all): whether the schedule's parallelism rests on where in its object it
// lies. That is so for the parts of an object that two ops of one segment touch without meeting, one of them writing.
std::vector<std::uint8_t> fixed_accesses(const StepAccesses& accesses, const StepObjects& objects,
                                         const Segmentation& segments);

}  // namespace nimble::analyzer
