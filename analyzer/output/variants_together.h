// Plans the kinds of step of a program so that one schedule can serve them all: what kinds begin with alike is cut into
// the same segments in all of them, and the memory that it names is in the same place.
//
// Kinds that no schedule can serve, or that are incompatible with the first, are left out with a reason: the program's
// steps of those kinds run untouched. The first kind always stays. One thread. No errors.
#pragma once

#include <vector>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

// `kinds`: at least one, each planned by itself.
Analysis fit_kinds_together(std::vector<StepAnalysis> kinds, const AnalysisOptions& options);

}  // namespace nimble::analyzer
