// Whether a schedule's order rests on beliefs: on evidence that is declared or observed, and that may be wrong.
//
// Pure; any thread. No errors.
#pragma once

#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

// "rests on beliefs: of 40 ops 12 are known by declared evidence, 3 by observed evidence". Empty if no two ops that a
// schedule leaves unordered are known by a belief.
std::string beliefs_text(const Analysis& analysis);

}  // namespace nimble::analyzer
