#include "shim/record/trace/record_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace nimble::shim {
namespace {

// What was appended, piece after piece, as one text.
std::string content(const RecordBuffer& buffer) {
  std::string text;
  buffer.read(
      [&](const std::uint8_t* begin, std::size_t bytes) { text.append(reinterpret_cast<const char*>(begin), bytes); });
  return text;
}

// As the queue uses two of them: one is filled while the other is read.
TEST(RecordBuffer, KeepsAllThatIsAppendedInOrderAndWhereItIs) {
  std::mt19937 random(1);
  RecordBuffer filled, read;
  for (int round = 0; round < 8; ++round) {
    // Small pieces, far more than is kept from round to round; then some that are larger than a chunk.
    const bool small = round % 2 == 0;
    const int pieces = small ? 30'000 : 30;
    std::string expected;
    std::vector<std::pair<const std::uint8_t*, char>> ends;
    for (int i = 0; i < pieces; ++i) {
      const std::size_t bytes = 8 * (1 + random() % (small ? 70 : 60'000));
      const auto letter = static_cast<char>('a' + i % 26);
      std::uint8_t* const piece = filled.append(bytes);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(piece) % 8, 0u);
      std::memset(piece, letter, bytes);
      expected.append(bytes, letter);
      ends.emplace_back(piece + bytes - 1, letter);
    }
    EXPECT_EQ(filled.size(), expected.size());
    filled.swap(read);
    EXPECT_EQ(filled.size(), 0u);
    EXPECT_EQ(read.size(), expected.size());
    EXPECT_TRUE(content(read) == expected);
    for (const auto& [last, letter] : ends) ASSERT_EQ(*last, letter);
    read.clear();
    EXPECT_EQ(read.size(), 0u);
    EXPECT_EQ(content(read), "");
  }
}

}  // namespace
}  // namespace nimble::shim
