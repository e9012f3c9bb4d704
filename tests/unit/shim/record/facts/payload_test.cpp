#include "shim/record/facts/payload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace nimble::shim {
namespace {

TEST(Payload, FindsTheWordsThatLieWhereMemoryWasAllocated) {
  AddressBounds range;
  std::vector<TraceWord> found;
  const std::uint64_t table[] = {0x5000, 0x8000};
  EXPECT_TRUE(find_words(table, sizeof table, 0, range, found));
  EXPECT_TRUE(found.empty()) << "nothing was allocated";
  range.add(0x6000, 16);
  range.add(0x4000, 0x1000);
  EXPECT_EQ(range.begin(), 0x4000u);
  EXPECT_EQ(range.end(), 0x6010u);
  EXPECT_TRUE(find_words(table, sizeof table, 0, range, found));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].offset, 0u);
}

// The same as looking at every word by itself, wherever the copy begins and ends.
TEST(Payload, MissesNone) {
  std::mt19937_64 random(1);
  AddressBounds range;
  range.add(1000, 9000);
  std::vector<std::uint8_t> bytes(5000);
  for (int round = 0; round < 200; ++round) {
    std::fill(bytes.begin(), bytes.end(), 0xff);
    const std::size_t size = random() % bytes.size();
    const std::uint64_t to = random() % 64;
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t word = random() % 12000;
      if (size >= 8) std::memcpy(bytes.data() + random() % (size - 7), &word, sizeof word);
    }
    std::vector<TraceWord> found, expected;
    ASSERT_TRUE(find_words(bytes.data(), size, to, range, found));
    for (std::size_t at = 0; at + 8 <= size; ++at) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if ((to + at) % 8 == 0 && word >= 1000 && word < 10000) expected.push_back({at, word});
    }
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].offset, expected[i].offset);
      EXPECT_EQ(found[i].value, expected[i].value);
    }
  }
}

TEST(Payload, TooMuchIsNotLookedAt) {
  AddressBounds range;
  range.add(1, 100);
  std::vector<TraceWord> found;
  std::vector<std::uint64_t> table(kMostWords + 1, 5);
  EXPECT_TRUE(find_words(table.data(), kMostWords * 8, 0, range, found));
  found.clear();
  EXPECT_FALSE(find_words(table.data(), table.size() * 8, 0, range, found));
  EXPECT_FALSE(find_words(nullptr, kMostPayload + 1, 0, range, found));
}

}  // namespace
}  // namespace nimble::shim
