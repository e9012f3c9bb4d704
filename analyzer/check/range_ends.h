// Finds launches of a region with an argument that may be the end of one allocation or the beginning of another.
//
// If two allocations are adjacent, the end of the first is the address of the second. A region moves the memory that it
// allocates and releases, and the two part: then it matters which one was meant. There is no doubt if the kernel's code
// or a rule says that the argument is followed, or if its type differs from that of the pointer to the first one's
// beginning, since both ends of a range have the same type.
//
// Pure; any thread. No errors.
#pragma once

#include <string>

#include "analyzer/analysis.h"
#include "analyzer/rules/rules.h"

namespace nimble::shim {

// The first such launch, described for people; empty if there is none.
std::string doubtful_end(const analyzer::StepAnalysis& step, const analyzer::Rules& rules);

}  // namespace nimble::shim
