// The minimum equivalent graph (transitive reduction) of a DAG: the edges that no path of other edges implies.
//
// Nodes are covered greedily by chains; each node keeps, for every chain that it can be reached from, the furthest node
// there, and predecessors are taken latest first, so that an edge is redundant exactly if one that was taken earlier
// reaches its source. A node that every node before it reaches (a barrier) is kept as one number. Time is edges times
// the number of chains in flight: near-linear on graphs as wide as traces are; memory is freed after the last
// successor. Pure function; any thread. No errors.
#pragma once

#include "analyzer/graph/dag.h"

namespace nimble::analyzer {

Dag transitive_reduction(const Dag& dag);

}  // namespace nimble::analyzer
