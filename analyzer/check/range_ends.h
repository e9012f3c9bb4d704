// Finds launches of a region of which an argument may be the end of one piece of memory as well as the begin of
// another.
//
// Where two allocations lie side by side, the end of the first is the address of the second. A region moves the memory
// that it allocates and releases, and the two part: then it matters which one was meant. It is not in doubt where the
// kernel's code or a rule says that the argument is followed, nor where its type is another than that of the first
// one's begin, since the two ends of a range have the same.
//
// Pure; any thread. No errors.
#pragma once

#include <string>

#include "analyzer/analysis.h"
#include "analyzer/rules/rules.h"

namespace nimble::shim {

// The first such launch, in words for people; empty where there is none.
std::string doubtful_end(const analyzer::Analysis& analysis, const analyzer::Rules& rules);

}  // namespace nimble::shim
