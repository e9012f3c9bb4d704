// The report as one HTML file: opens from disk, with no network.
//
// The page is analyzer/page/files/, and D3 (https://d3js.org, BSD licence) for scales, zoom and selections; both are in
// the program since it was built. Pure; any thread. No errors.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

// `from`: the first op to show, of a step that has too many for a page (kMostOpsOfPage).
std::string html_report(const StepAnalysis& analysis, std::uint32_t from);

}  // namespace nimble::analyzer
