// Words of a step's launches that look like addresses and were taken not to be. The step's accesses rely on no memory
// coming to lie there. Replay asks about each such word before it launches; nothing does before a graph's launch.
//
// A word at any byte counts, because words that are not where pointers are aligned were not asked about. Ops that are
// ordered with everything do not count, whatever they touch, nor do words that are known not to be addresses.
//
// Pure; any thread. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"

namespace nimble::analyzer {

// Ascending, each once. `accesses` are of the step's calls.
std::vector<std::uint64_t> non_pointer_words(const Trace& trace, const ObjectTable& table, const Observations& seen,
                                             const StepAccesses& accesses, std::span<const std::uint32_t> calls);

}  // namespace nimble::analyzer
