// How long the longest path of a DAG is, and how many of its nodes could run side by side.
//
// Pure functions; any thread. Durations in microseconds. No errors.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/graph/dag.h"

namespace nimble::analyzer {

struct CriticalPath {
  std::uint32_t nodes = 0;
  double us = 0;
};

CriticalPath critical_path(const Dag& dag, std::span<const double> duration_us);

struct Concurrency {
  std::uint32_t nodes = 0;
  bool exact = false;  // else a lower bound: the widest level
};

// The largest set of nodes with `counts[node]` set such that none must come before another. Exact, by Dilworth's
// theorem, up to kMaxExactNodes such nodes.
inline constexpr std::uint32_t kMaxExactNodes = 2048;
Concurrency max_concurrency(const Dag& dag, std::span<const std::uint8_t> counts);

}  // namespace nimble::analyzer
