// The levels of a graph. A pure function; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/graph/dag.h"

namespace nimble::analyzer {

// Per node, the number of edges on the longest path that leads to it.
std::vector<std::uint32_t> levels_of(const Dag& dag);

}  // namespace nimble::analyzer
