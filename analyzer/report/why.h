// Explains why two ops of the step stand in their order, or why they do not.
//
// Pure; any thread. Ops are indices into the step; the caller has checked that they are inside. No errors.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

std::string explain_order(const Analysis& analysis, std::uint32_t first, std::uint32_t second);

}  // namespace nimble::analyzer
