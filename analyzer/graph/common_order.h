// The order that two orders of the same ops have in common: the one that a program has given the nodes of its graph,
// and the one that they were found to need.
//
// A graph with branches is analyzed in one of the orders that it leaves open, and any two nodes that touch the same
// memory are found to need an order, whether the program has ordered them or not. What both orders contain is the
// program's, with nothing added: two nodes that it has left unordered stay so, whether they race, wait for each other,
// or only touch different parts of what counts as one piece of memory.
//
// Pure; any thread. Takes three bits for each pair of ops.
#pragma once

#include <vector>

#include "analyzer/graph/dag.h"

namespace nimble::analyzer {

struct CommonOrder {
  std::vector<Dag::Edge> edges;  // without edges that others imply; ascending by target
  bool is_given = false;         // it is all of the given order
};

// Both are over the same ops.
CommonOrder common_order(const Dag& needed, const Dag& given);

}  // namespace nimble::analyzer
