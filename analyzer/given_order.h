// The order that a program has given the nodes of a graph of its own, and whether it holds all that they need.
//
// A graph with branches is looked at in one of the orders that it leaves open. What two nodes need of each other by
// what they touch must then be order that the program has given, else they race, and may be waiting for each other; and
// a node that may be waiting for somebody must have been put in order with all others, since it is given more order
// than it had otherwise. Where both hold, order is only ever taken away from such nodes.
//
// Pure; any thread. Takes a bit for each pair of ops.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "analyzer/dag.h"

namespace nimble::analyzer {

// Two nodes, the first one first in the order of ops, which `given` leaves unordered although it must not; nothing
// where there are none. Ops that are not `works` (allocations, releases) are no nodes of the graph: what they hand on
// from one op to another, those need of each other. All three are over the same ops.
std::optional<std::pair<std::uint32_t, std::uint32_t>> left_unordered(const Dag& needed, const Dag& given,
                                                                      const std::vector<bool>& works,
                                                                      const std::vector<bool>& may_wait);

}  // namespace nimble::analyzer
