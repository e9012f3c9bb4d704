#include "analyzer/access/non_pointer_words.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

constexpr std::uint64_t kA = 0x7f0000100000, kB = 0x7f0000200000, kSize = 0x1000, kNowhere = 0x7f4000000010,
                        kElsewhere = 0x7f5000000020;

using Words = std::vector<std::uint64_t>;

// For a step of one launch, after two of the same kernel that were watched if `seen` describes them.
struct Case {
  std::string name = "_Z1f5ClassPf", params = "[[0,24],[24,8]]", nowhere = "[0,8,16,24]", rules, seen;
  bool self_contained = true;

  Words words(const std::string& bytes) const {
    test::TraceText text;
    text.image(self_contained);
    text.function(name, params, 0, ",\"code\":\"00000000000000ab\"");
    text.stream();
    text.alloc(kA, kSize);
    text.alloc(kB, kSize);
    text.copy(kA, kB, kSize);
    const std::string more = ",\"nowhere\":" + nowhere;
    std::uint64_t calls = 3;
    if (!seen.empty())
      for (int i = 0; i < 2; ++i, ++calls) text.launch(0, bytes, 0, more + seen);
    text.launch(0, bytes, 0, more);
    AnalysisOptions options = test::believing();
    if (!rules.empty()) options.rules.read_text("{\"nimble_rules\": 2, \"rules\": [" + rules + "]}", "rules");
    options.one_kind = true;
    options.step = StepPlace{calls, calls, 1};
    return text.analyze(options).evidence.non_pointer_words;
  }
};

// Which of these are among the words. What lies across two numbers may look like another address.
Words of(const Words& candidates, const Words& words) {
  Words found;
  for (const std::uint64_t word : candidates)
    if (std::ranges::binary_search(words, word)) found.push_back(word);
  return found;
}

TEST(LedNowhere, WhatCouldBeAnAddress) {
  const std::string pointer = hex(kA);
  const auto found = [](const std::string& bytes) {
    return of({kNowhere, kElsewhere, kA, 7, 64}, Case().words(bytes));
  };
  EXPECT_EQ(found(hex(kNowhere) + hex(0) + hex(7) + pointer), Words{kNowhere});
  EXPECT_EQ(found(hex(kElsewhere) + hex(7) + hex(kNowhere) + pointer), (Words{kNowhere, kElsewhere}));
  EXPECT_EQ(found(hex(64) + hex(7) + hex(0) + hex(kNowhere)), Words{kNowhere}) << "a pointer by its type";
  EXPECT_EQ(found(hex(64) + hex(7) + hex(0) + pointer), Words{});
  const Words floats = Case().words(hex(0x3f800000, 4) + hex(0x3f800000, 4) + hex(kA) + hex(kB) + pointer);
  EXPECT_EQ(floats, Words{});
}

TEST(LedNowhere, WhereverItStands) {
  EXPECT_EQ(of({kNowhere}, Case().words(hex(7, 4) + hex(kNowhere) + hex(0, 4) + hex(7) + hex(kA))), Words{kNowhere});
  EXPECT_EQ(of({kNowhere}, Case().words("07" + hex(kNowhere) + hex(0, 7) + hex(7) + hex(kA))), Words{kNowhere});
  EXPECT_EQ(Case().words(hex(kA) + hex(kB) + hex(kA) + hex(kB)), Words{}) << "between pointers there is nothing";
}

TEST(LedNowhere, NotWhereItIsKnownToBeNone) {
  const std::string words = hex(kNowhere) + hex(0) + hex(0) + hex(kA);
  Case it;
  it.rules = R"({"kernel":"_Z1f.*","params":["value","out"]})";
  EXPECT_EQ(it.words(words), Words{});
  it.rules = R"({"kernel":"_Z1f.*","params":["scan","out"]})";
  EXPECT_EQ(of({kNowhere}, it.words(words)), Words{kNowhere});
  Case unknown;
  unknown.self_contained = false;
  EXPECT_EQ(unknown.words(words), Words{}) << "ordered with everything, whatever it is";
}

TEST(LedNowhere, NotJustPastAnObjectIfThatWasSeen) {
  const auto range = [](std::uint64_t base) { return "[" + std::to_string(base) + ",4096]"; };
  Case it;
  it.name = "opaque";
  it.nowhere = "[8,16]";
  it.seen = ",\"plain\":true,\"compared\":[" + range(kA) + "," + range(kB) + "],\"written\":[" + range(kB) + "]";
  const std::uint64_t past_end = kA + kSize + 16;
  const auto found = [&] {
    return of({past_end, kNowhere}, it.words(hex(kA) + hex(past_end) + hex(kNowhere) + hex(kB)));
  };
  EXPECT_EQ(found(), Words{kNowhere});
  it.name = "_Z1f5ClassPf";
  EXPECT_EQ(found(), (Words{past_end, kNowhere})) << "a signature does not tell";
}

}  // namespace
}  // namespace nimble::analyzer
