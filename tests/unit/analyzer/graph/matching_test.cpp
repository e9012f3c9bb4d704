#include "analyzer/graph/matching.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

// The largest matching, by trying for each left node every partner and none.
std::uint32_t best(const std::vector<std::vector<std::uint32_t>>& beside, std::size_t left, std::uint32_t used) {
  if (left == beside.size()) return 0;
  std::uint32_t result = best(beside, left + 1, used);
  for (std::uint32_t right : beside[left])
    if ((used >> right & 1) == 0) result = std::max(result, 1 + best(beside, left + 1, used | 1u << right));
  return result;
}

Matching match(const std::vector<std::vector<std::uint32_t>>& beside, std::uint32_t right) {
  return maximum_matching(static_cast<std::uint32_t>(beside.size()), right,
                          [&](std::uint32_t node) { return std::span<const std::uint32_t>(beside[node]); });
}

TEST(Matching, IsAMatchingAndAsLargeAsCanBe) {
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    std::uint32_t left = 1 + test::below(random, 7), right = 1 + test::below(random, 7);
    std::vector<std::vector<std::uint32_t>> beside(left);
    for (auto& list : beside)
      for (std::uint32_t r = 0; r < right; ++r)
        if (random() % 3 == 0) list.push_back(r);
    Matching matching = match(beside, right);
    std::uint32_t size = 0;
    for (std::uint32_t l = 0; l < left; ++l) {
      std::uint32_t r = matching.right_of[l];
      if (r == kNone) continue;
      ++size;
      ASSERT_EQ(matching.left_of[r], l);
      ASSERT_NE(std::find(beside[l].begin(), beside[l].end(), r), beside[l].end());
    }
    ASSERT_EQ(size, matching.size);
    ASSERT_EQ(size, best(beside, 0, 0)) << "round " << round;
  }
}

// Every left node but the last wants its neighbour's partner: one augmenting path runs through all of them, deeper than
// a stack of calls could follow.
TEST(Matching, FollowsVeryLongAugmentingPaths) {
  constexpr std::uint32_t kNodes = 300'000;
  std::vector<std::vector<std::uint32_t>> beside(kNodes);
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    if (node + 1 < kNodes) beside[node] = {node, node + 1};
    if (node + 1 == kNodes) beside[node] = {0};
  }
  EXPECT_EQ(match(beside, kNodes).size, kNodes);
}

}  // namespace
}  // namespace nimble::analyzer
