// Maximum matching of a bipartite graph, by Hopcroft and Karp (1973), in O(edges * sqrt(nodes)), without recursion.
//
// Pure function; any thread. No errors. The same graph gives the same matching.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace nimble::analyzer {

struct Matching {
  std::vector<std::uint32_t> right_of;  // per left node its partner, or kNone
  std::vector<std::uint32_t> left_of;   // per right node its partner, or kNone
  std::uint32_t size = 0;
};

// `neighbours(l)` are the right nodes adjacent to left node l; it must give the same at every call.
Matching maximum_matching(std::uint32_t left, std::uint32_t right,
                          const std::function<std::span<const std::uint32_t>(std::uint32_t)>& neighbours);

}  // namespace nimble::analyzer
