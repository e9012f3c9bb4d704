// The step's dependencies as a graph for Graphviz: nodes are ops, a box per segment, edges the needed dependencies.
// Pure; any thread. No errors.
#pragma once

#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

std::string dot_text(const StepAnalysis& analysis);

}  // namespace nimble::analyzer
