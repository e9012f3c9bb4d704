// Segments, plans and memory of one kind of step, once its dependencies and costs are known; and whether a schedule can
// serve it. One thread. No errors: what speaks against a schedule is in the Analysis.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/analysis.h"
#include "analyzer/plan/memory_plan.h"

namespace nimble::analyzer {

// What a plan has to keep to, where it must go together with others.
struct PlanBounds {
  std::vector<std::uint32_t> cuts;  // ops before which segments are to be cut; where there are any, nowhere for speed
  PlacesOfObjects places;
};

void plan_step(Analysis& analysis, const AnalysisOptions& options, const PlanBounds& bounds);

}  // namespace nimble::analyzer
