#include "analyzer/graph/dag.h"

#include <algorithm>
#include <cassert>

namespace nimble::analyzer {

Dag::Dag(std::uint32_t nodes, std::vector<Edge> edges)
    : edges_(std::move(edges)), first_out_(nodes + 1, 0), first_in_(nodes + 1, 0) {
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  targets_.reserve(edges_.size());
  for (const auto& [from, to] : edges_) {
    assert(from < to && to < nodes);
    ++first_out_[from + 1];
    ++first_in_[to + 1];
    targets_.push_back(to);
  }
  for (std::uint32_t i = 0; i < nodes; ++i) {
    first_out_[i + 1] += first_out_[i];
    first_in_[i + 1] += first_in_[i];
  }
  sources_.resize(edges_.size());
  std::vector<std::uint32_t> next(first_in_.begin(), first_in_.end() - 1);
  for (const auto& [from, to] : edges_) sources_[next[to]++] = from;
}

}  // namespace nimble::analyzer
