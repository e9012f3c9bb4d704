// Puts the schedule together from an analysis.
//
// Pure: the same analysis gives the same schedule. The result owns all it holds, and contains no address of the
// recorded process. No errors; the caller has checked that StepPlan::status allows a schedule.
#pragma once

#include "analyzer/analysis.h"
#include "analyzer/output/schedule_variants.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

// For all kinds of step.
Schedule build_schedule(const Analysis& analysis);
// For this kind alone.
KindSchedule build_kind_schedule(const StepAnalysis& analysis);

// Per access of the step (as in StepAccesses::all): whether the schedule's parallelism relies on its place within its
// object. It does for disjoint parts of an object that two ops of one segment touch, one of them writing.
std::vector<std::uint8_t> fixed_accesses(const StepAccesses& accesses, const StepObjects& objects,
                                         const Segmentation& segments);

}  // namespace nimble::analyzer
