#include "analyzer/order/parallelism.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace nimble::analyzer {
namespace {

constexpr std::uint32_t kAtOnce = 64;       // ops from which paths are followed in one pass, a bit each
constexpr std::uint32_t kSampled = 4 * 64;  // ops of a segment that is sampled

// The same numbers everywhere: SplitMix64.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Counts, for each of up to 64 `sources`, ascending, the later nodes that no path leads to.
void count_from(const Dag& dag, std::span<const Evidence> evidence, std::span<const std::uint32_t> sources,
                std::vector<std::uint64_t>& reached, std::array<std::uint64_t, kEvidences>& pairs) {
  std::array<std::uint64_t, kEvidences> known_as{};  // sources by their evidence
  std::uint64_t passed = 0;                          // sources before the node at hand
  std::size_t next = 0;
  for (std::uint32_t node = sources.front(); node < dag.nodes(); ++node) {
    std::uint64_t mine = 0;
    for (std::uint32_t from : dag.predecessors(node))
      if (from >= sources.front()) mine |= reached[from];
    std::uint64_t unordered = passed & ~mine;
    auto own = static_cast<int>(evidence[node]);
    std::uint64_t weaker_or_same = 0;
    for (int e = 0; e < kEvidences; ++e) {
      if (e <= own)
        weaker_or_same |= known_as[e];
      else
        pairs[e] += static_cast<std::uint64_t>(std::popcount(unordered & known_as[e]));
    }
    pairs[own] += static_cast<std::uint64_t>(std::popcount(unordered & weaker_or_same));
    for (; next < sources.size() && sources[next] == node; ++next) {
      std::uint64_t bit = std::uint64_t{1} << next;
      passed |= bit;
      mine |= bit;
      known_as[own] |= bit;
    }
    reached[node] = mine;
  }
}

}  // namespace

void ParallelismCounter::add(const Dag& enforced, std::span<const Evidence> evidence) {
  const std::uint32_t nodes = enforced.nodes();
  if (nodes < 2) return;
  const std::uint64_t pass = nodes + enforced.edges().size();
  const std::uint64_t cost = (nodes + kAtOnce - 1) / kAtOnce * pass;
  const bool exact = nodes <= kSampled || cost <= budget_;
  std::vector<std::uint32_t> sources;
  if (exact) {
    budget_ -= std::min(budget_, cost);
    for (std::uint32_t node = 0; node < nodes; ++node) sources.push_back(node);
  } else {
    result_.exact = false;
    for (std::uint32_t i = 0; i < kSampled; ++i) sources.push_back(static_cast<std::uint32_t>(mixed(i) % nodes));
    std::sort(sources.begin(), sources.end());
  }
  std::vector<std::uint64_t> reached(nodes);
  std::array<std::uint64_t, kEvidences> pairs{};
  for (std::size_t at = 0; at < sources.size(); at += kAtOnce)
    count_from(enforced, evidence, std::span(sources).subspan(at, std::min<std::size_t>(kAtOnce, sources.size() - at)),
               reached, pairs);
  for (int e = 0; e < kEvidences; ++e)
    result_.pairs[e] +=
        exact ? pairs[e]
              : static_cast<std::uint64_t>(static_cast<double>(pairs[e]) * static_cast<double>(nodes) / kSampled + 0.5);
}

}  // namespace nimble::analyzer
