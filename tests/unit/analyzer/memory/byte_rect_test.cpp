#include "analyzer/memory/byte_rect.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

std::set<std::uint64_t> bytes(const ByteRect& region) {
  std::set<std::uint64_t> result;
  for (std::uint64_t row = 0; row < region.height; ++row)
    for (std::uint64_t column = 0; column < region.width; ++column)
      result.insert(region.begin + row * region.pitch + column);
  return result;
}

TEST(ByteRect, OverlapIsExactForRangesAndForEqualPitches) {
  test::Random random(9);
  for (int round = 0; round < 40000; ++round) {
    std::uint64_t pitch = 1 + random() % 12;
    auto rectangle = [&] {
      ByteRect region{random() % 40, random() % (pitch + 1), pitch, 1 + random() % 4};
      if (random() % 3 == 0) region = {random() % 40, random() % 30, 0, 1};
      return normalized(region);
    };
    ByteRect a = rectangle(), b = rectangle();
    auto in_a = bytes(a), in_b = bytes(b);
    bool meet = false;
    for (std::uint64_t byte : in_a) meet = meet || in_b.count(byte) > 0;
    ASSERT_EQ(overlap(a, b), meet) << a.begin << " " << a.width << " " << a.pitch << " " << a.height << " / " << b.begin
                                   << " " << b.width << " " << b.pitch << " " << b.height;
    ASSERT_EQ(overlap(b, a), meet);
  }
}

TEST(ByteRect, NeverMissesAMeetingOfDifferentPitches) {
  test::Random random(10);
  for (int round = 0; round < 20000; ++round) {
    auto rectangle = [&] {
      std::uint64_t pitch = 1 + random() % 12;
      return normalized({random() % 40, 1 + random() % pitch, pitch, 1 + random() % 4});
    };
    ByteRect a = rectangle(), b = rectangle();
    auto in_b = bytes(b);
    bool meet = false;
    for (std::uint64_t byte : bytes(a)) meet = meet || in_b.count(byte) > 0;
    if (meet) {
      ASSERT_TRUE(overlap(a, b));
    }
  }
}

TEST(ByteRect, SurvivesTheEndsOfTheAddressSpace) {
  constexpr std::uint64_t kTop = ~std::uint64_t{0};
  EXPECT_TRUE(overlap({0, kTop, 0, 1}, {kTop - 1, 1, 0, 1}));
  EXPECT_FALSE(overlap({0, 1, kTop / 2, 3}, {5, 1, kTop / 2, 2}));
  EXPECT_TRUE(overlap({0, 6, kTop / 2, 2}, {5, 1, kTop / 2, 2}));
}

}  // namespace
}  // namespace nimble::analyzer
