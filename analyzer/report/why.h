// Explains why two ops of the step are ordered, or why they are not.
//
// Pure; any thread. Ops are indices into the step; the caller has checked that they are inside. No errors.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

std::string explain_order(const StepAnalysis& analysis, std::uint32_t first, std::uint32_t second);

}  // namespace nimble::analyzer
