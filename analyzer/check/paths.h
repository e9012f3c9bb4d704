// Whether the edges of a graph order its nodes, for the checker.
//
// Immutable once built; any thread. Memory is bounded by nodes and edges. No errors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nimble::analyzer {

// Which nodes of a graph come before which, by its edges.
//
// The nodes are covered by chains along edges; for each chain, a node knows the furthest node there that comes before
// it. This is done for some chains at a time, so that memory stays bounded.
class Paths {
 public:
  // Nodes are 0 to `nodes` - 1; every edge goes from a smaller to a larger one.
  Paths(std::uint32_t nodes, std::vector<std::array<std::uint32_t, 2>> edges);

  // The first of `pairs` whose first node does not come before its second; the number of pairs if there is none.
  std::size_t first_missing(const std::vector<std::array<std::uint32_t, 2>>& pairs) const;

 private:
  static constexpr std::uint32_t kAtOnce = 16;
  using Reached = std::array<std::uint32_t, kAtOnce>;  // per chain one more than the furthest node, 0 if there is none

  bool has_edge(const std::array<std::uint32_t, 2>& pair) const;

  std::vector<Reached> reached_from(std::uint32_t first_chain) const;

  std::vector<std::array<std::uint32_t, 2>> edges_;  // by target
  std::vector<std::uint32_t> into_;                  // per node: where its edges begin
  std::vector<std::uint32_t> chain_;
  std::uint32_t chains_ = 0;
};

}  // namespace nimble::analyzer
