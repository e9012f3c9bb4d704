#include "analyzer/diff/alignment.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using Items = std::vector<std::uint64_t>;

// The length of a longest common subsequence, by the table.
std::size_t longest(const Items& a, const Items& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j)
      table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
  return table[a.size()][b.size()];
}

TEST(Alignment, IsALongestCommonSubsequence) {
  test::Random random(44);
  for (int round = 0; round < 3000; ++round) {
    Items a(test::below(random, 14)), b(test::below(random, 14));
    const std::uint32_t letters = 1 + test::below(random, 5);
    for (Items* items : {&a, &b})
      for (std::uint64_t& item : *items) item = test::below(random, letters);
    const Alignment alignment = align(a, b);
    ASSERT_TRUE(alignment.exact);
    ASSERT_EQ(alignment.matched.size(), longest(a, b));
    for (std::size_t i = 0; i < alignment.matched.size(); ++i) {
      const auto [x, y] = alignment.matched[i];
      ASSERT_EQ(a.at(x), b.at(y));
      if (i > 0) {
        ASSERT_LT(alignment.matched[i - 1].first, x);
        ASSERT_LT(alignment.matched[i - 1].second, y);
      }
    }
  }
}

TEST(Alignment, BeyondTheBoundTheEndsStillCount) {
  const Items a{1, 2, 10, 11, 12, 3}, b{1, 2, 20, 21, 22, 3};
  EXPECT_EQ(align(a, b, 6).matched.size(), 3u);
  EXPECT_TRUE(align(a, b, 6).exact);
  const Alignment alignment = align(a, b, 5);
  EXPECT_FALSE(alignment.exact);
  EXPECT_EQ(alignment.matched, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 0}, {1, 1}, {5, 5}}));
}

}  // namespace
}  // namespace nimble::analyzer
