#include "analyzer/check/paths.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {

Paths::Paths(std::uint32_t nodes, std::vector<std::array<std::uint32_t, 2>> edges)
    : edges_(std::move(edges)), into_(nodes + 1, 0), chain_(nodes) {
  std::sort(edges_.begin(), edges_.end(),
            [](const auto& a, const auto& b) { return std::tie(a[1], a[0]) < std::tie(b[1], b[0]); });
  for (const auto& edge : edges_) ++into_[edge[1] + 1];
  for (std::uint32_t node = 0; node < nodes; ++node) into_[node + 1] += into_[node];
  std::vector<bool> has_next(nodes, false);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    chain_[node] = kNone;
    for (std::uint32_t e = into_[node]; e < into_[node + 1] && chain_[node] == kNone; ++e)
      if (std::uint32_t from = edges_[e][0]; !has_next[from]) {
        has_next[from] = true;
        chain_[node] = chain_[from];
      }
    if (chain_[node] == kNone) chain_[node] = chains_++;
  }
}

std::size_t Paths::first_missing(const std::vector<std::array<std::uint32_t, 2>>& pairs) const {
  std::vector<std::vector<std::uint32_t>> asked((chains_ + kAtOnce - 1) / kAtOnce);
  for (std::uint32_t i = 0; i < pairs.size(); ++i)
    if (!has_edge(pairs[i])) asked[chain_[pairs[i][0]] / kAtOnce].push_back(i);
  std::size_t missing = pairs.size();
  for (std::uint32_t block = 0; block < asked.size(); ++block) {
    if (asked[block].empty()) continue;
    auto reached = reached_from(block * kAtOnce);
    for (std::uint32_t i : asked[block]) {
      auto [from, to] = pairs[i];
      if (reached[to][chain_[from] - block * kAtOnce] <= from) missing = std::min<std::size_t>(missing, i);
    }
  }
  return missing;
}

bool Paths::has_edge(const std::array<std::uint32_t, 2>& pair) const {
  auto at = [&](std::uint32_t node) { return edges_.begin() + into_[node]; };
  auto found = std::lower_bound(at(pair[1]), at(pair[1] + 1), pair[0],
                                [](const auto& edge, std::uint32_t from) { return edge[0] < from; });
  return found != at(pair[1] + 1) && (*found)[0] == pair[0];
}

auto Paths::reached_from(std::uint32_t first_chain) const -> std::vector<Reached> {
  std::vector<Reached> reached(chain_.size(), Reached{});
  for (std::uint32_t node = 0; node < chain_.size(); ++node) {
    for (std::uint32_t e = into_[node]; e < into_[node + 1]; ++e) {
      const Reached& before = reached[edges_[e][0]];
      for (std::uint32_t c = 0; c < kAtOnce; ++c) reached[node][c] = std::max(reached[node][c], before[c]);
    }
    if (chain_[node] >= first_chain && chain_[node] < first_chain + kAtOnce)
      reached[node][chain_[node] - first_chain] = node + 1;
  }
  return reached;
}

}  // namespace nimble::analyzer
