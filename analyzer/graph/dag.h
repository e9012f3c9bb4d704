// A directed acyclic graph whose nodes are numbered in a topological order: every edge goes from a smaller to a larger
// number.
//
// Owns its edges, stored by source and by target; immutable once built, so threads may share it. No errors: the caller
// provides edges that ascend (checked in debug builds).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace nimble::analyzer {

class Dag {
 public:
  using Edge = std::array<std::uint32_t, 2>;

  Dag() : Dag(0, {}) {}
  // Edges may come in any order and more than once.
  Dag(std::uint32_t nodes, std::vector<Edge> edges);

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(first_out_.size() - 1); }
  // Ascending by source, then by target; each once.
  const std::vector<Edge>& edges() const { return edges_; }

  // Ascending.
  std::span<const std::uint32_t> successors(std::uint32_t node) const {
    return {targets_.data() + first_out_[node], targets_.data() + first_out_[node + 1]};
  }
  std::span<const std::uint32_t> predecessors(std::uint32_t node) const {
    return {sources_.data() + first_in_[node], sources_.data() + first_in_[node + 1]};
  }

 private:
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> first_out_, targets_, first_in_, sources_;
};

}  // namespace nimble::analyzer
