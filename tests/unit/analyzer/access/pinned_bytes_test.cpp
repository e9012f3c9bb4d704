// Each piece once, whatever was taken away in between.
#include "analyzer/access/pinned_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nimble::analyzer {
namespace {

TEST(PinnedBytes, HoldEachPieceOnceInTheOrderOfComing) {
  std::mt19937 random(7);
  PinnedBytes bytes;
  std::vector<PinnedBytes::Piece> expected;
  for (int i = 0; i < 5000; ++i) {
    const PinnedBytes::Piece piece{random() % 64 * 4, random() % 2 == 0 ? 4 : 8};
    if (random() % 8 == 0) {
      const auto is_it = [&](const PinnedBytes::Piece& each) { return each.first == piece.first; };
      bytes.erase_if(is_it);
      std::erase_if(expected, is_it);
    } else {
      bytes.add(piece);
      if (std::ranges::find(expected, piece) == expected.end()) expected.push_back(piece);
    }
    ASSERT_EQ(bytes.all(), expected);
  }
  EXPECT_EQ(bytes.take(), expected);
  EXPECT_TRUE(bytes.empty());
  bytes.add({4, 8});
  EXPECT_EQ(bytes.all().size(), 1u);
}

}  // namespace
}  // namespace nimble::analyzer
