// Plans the kinds of step of a program so that one schedule can serve them all: what kinds begin with alike is cut into
// the same segments in all of them, and the memory that it names has the same place.
//
// Kinds that no schedule can serve, or that do not go together with the first, are left out, and a reason is kept: the
// program's steps of that kind run untouched. The first kind always stays. One thread. No errors.
#pragma once

#include "analyzer/analysis.h"

namespace nimble::analyzer {

void fit_kinds_together(Analysis& analysis, const AnalysisOptions& options);

}  // namespace nimble::analyzer
