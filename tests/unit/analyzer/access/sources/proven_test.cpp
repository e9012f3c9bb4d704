// What launches with proven code touch, given their parameter words.
#include "analyzer/access/sources/proven.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

constexpr std::uint64_t kA = 0x7f1200100000, kB = 0x7f1200200000, kSize = 0x1000, kNowhere = 0x7f4000000010;

// Of a step of one launch: "0r 1rw", the accesses by the objects; or "?" and why there are none.
std::string does(const std::string& params, const std::string& proven, const std::string& words,
                 const std::string& nowhere = "[]", bool same_code = true, Pinned* pinned = nullptr) {
  test::TraceText text;
  text.image(true);
  text.function("k", params, 0, ",\"proven\":" + proven + (same_code ? ",\"same_code\":true" : ""));
  text.stream();
  text.alloc(kA, kSize);
  text.alloc(kB, kSize);
  text.launch(0, words, 0, ",\"nowhere\":" + nowhere);
  AnalysisOptions options = test::believing();
  options.one_kind = true;
  options.step = StepPlace{2, 2, 1};
  const Analysis analysis = text.analyze(options);
  const OpAccesses& op = analysis.evidence.accesses.ops[0];
  if (pinned != nullptr) *pinned = analysis.evidence.accesses.pinned[0];
  if (op.role == OpRole::barrier) return "? " + analysis.evidence.accesses.reasons[op.why];
  std::string result;
  for (const Access& access : analysis.evidence.accesses.of(0)) {
    const std::uint32_t id = analysis.objects.objects[access.object].id;
    result.append(result.empty() ? "" : " ").append(analysis.input.table->objects()[id].base == kA ? "0" : "1");
    result.append(access.reads ? "r" : "").append(access.writes ? "w" : "");
  }
  return result;
}

constexpr const char* kThree = "[[0,8],[8,8],[16,8]]";

TEST(ProvenAccess, GoesByTheWordsOfTheLaunch) {
  const auto of = [](std::uint64_t a, std::uint64_t b, std::uint64_t n) {
    return does(kThree, R"([[[0],"w"],[[8,16],"r"]])", hex(a) + hex(b) + hex(n), "[0,8,16]");
  };
  EXPECT_EQ(of(kA, kB, 0), "0rw 1r");
  EXPECT_EQ(of(kA, kB + 12, 1000), "0rw 1r") << "a pointer and a number";
  EXPECT_EQ(of(kA, 1000, kB + 12), "0rw 1r");
  EXPECT_EQ(of(kA, 0, 0), "0rw") << "null is not followed";
  EXPECT_EQ(of(0, kB, 0), "1r");
  EXPECT_EQ(of(kA, kB, kNowhere), "0rw 1r") << "the driver knows nothing there";
  EXPECT_EQ(does(kThree, R"([[[0],"w"],[[8,16],"r"]])", hex(kA) + hex(kB) + hex(kNowhere)).substr(0, 1), "?");
}

// Each of these leads to the second object, and no word says so.
TEST(ProvenAccess, AnAddressThatIsMadeOfNoPointerIsAnything) {
  const std::string none = "makes an address of the word at byte ";
  const auto of = [](const std::string& params, const std::string& proven, const std::string& words,
                     const std::string& nowhere = "[8]") { return does(params, proven, hex(kA) + words, nowhere); };
  EXPECT_EQ(of("[[0,8],[8,8]]", R"([[[0],"r"]])", hex(kB | std::uint64_t{5} << 48)), "0r") << "it is not followed";
  EXPECT_NE(of("[[0,8],[8,8]]", R"([[[0],"r"],[[8],"w"]])", hex(kB | std::uint64_t{5} << 48)).find("byte 8"),
            std::string::npos)
      << "a tag in the upper bits";
  EXPECT_NE(of("[[0,8],[8,8]]", R"([[[0],"r"],[[8],"w"]])", hex(kB << 16 | 5)).find(none), std::string::npos);
  EXPECT_NE(of("[[0,8],[8,8]]", R"([[[0],"r"],[[8],"w"]])", hex(kB >> 4)).find(none), std::string::npos);
  EXPECT_EQ(of("[[0,8],[8,4],[12,4],[16,4]]", R"([[[0],"r"],[[8,16],"w"]])", hex(7, 4) + hex(kB), "[]").substr(0, 1),
            "?")
      << "halves in two parameters";
  EXPECT_NE(of(kThree, R"([[[0],"r"],[[8,16],"w"]])", hex(kB + 64) + hex(64)).find("0r 1rw"), std::string::npos);
  EXPECT_NE(of(kThree, R"([[[0],"r"],[[8,16],"w"]])", hex(kB / 2) + hex(kB - kB / 2), "[8,16]").find(none),
            std::string::npos)
      << "the sum of two numbers";
}

TEST(ProvenAccess, OfAPackedClassAnAddressLiesAcrossWords) {
  const auto of = [](const std::string& proven, const std::string& words) {
    return does("[[0,8],[8,16]]", proven, hex(kA) + words, "[0,8,16]");
  };
  const std::string packed = hex(7, 4) + hex(kB) + hex(0, 4);
  EXPECT_NE(of(R"([[[0],"r"],[[8,16],"r"]])", packed).find("does not point into an allocation"), std::string::npos);
  EXPECT_NE(of(R"([[[0],"r"],[[16],"r"]])", packed).find("does not point into an allocation"), std::string::npos);
  EXPECT_EQ(of(R"([[[0],"r"]])", packed), "0r") << "the code has nothing to do with it";
  // Also where one of the words happens to be a pointer.
  EXPECT_NE(of(R"([[[0,8],"r"]])", packed).find("does not point into an allocation"), std::string::npos);
}

// The last parameter may be of any size.
TEST(ProvenAccess, AWordThatIsNotWholeIsReadAsFarAsItGoes) {
  const auto of = [](const std::string& words) {
    return does("[[0,8],[8,12]]", R"([[[0],"r"],[[8,16],"r"]])", hex(kA) + words, "[8]");
  };
  EXPECT_EQ(of(hex(kB) + hex(7, 4)), "0r 1r");
  EXPECT_EQ(of(hex(0) + hex(0, 4)), "0r");
  EXPECT_EQ(of(hex(7, 4) + hex(kB)).substr(0, 1), "?");
  EXPECT_EQ(of(hex(0) + hex(7, 4)).substr(0, 1), "?");
}

// Conditions on a flag at byte 16 and two bytes after it. What is excluded may be anything.
TEST(ProvenAccess, AccessesUnderAConditionOnAParameterNeedItToHold) {
  const std::string proven = R"([[[0],"r",[[16,4,"==",1],[20,2,"!=",513]]],[[8],"w"]])";
  const auto of = [&](std::uint64_t word, std::uint32_t flag, std::uint32_t more = 0, bool same_code = true) {
    return does(kThree, proven, hex(word) + hex(kB) + hex(flag, 4) + hex(more, 4), "[]", same_code);
  };
  for (const bool same_code : {true, false}) {
    EXPECT_EQ(of(kA, 1, 0, same_code), "0r 1rw");
    for (const std::uint64_t left :
         {kA, kB, kNowhere, std::uint64_t{0}, std::uint64_t{1} << 60, kA | std::uint64_t{3} << 48}) {
      EXPECT_EQ(of(left, 0, 0, same_code), "1rw") << std::hex << left;
      EXPECT_EQ(of(left, 1, 0xabcd0201, same_code), "1rw") << std::hex << left << " by the second condition";
    }
    EXPECT_EQ(of(kA, 1, 0xabcd0202, same_code), "0r 1rw");
    EXPECT_EQ(of(kNowhere, 1, 0, same_code).substr(0, 1), "?");
  }
  // Another access through the same word has none.
  const std::string twice = R"([[[0],"r",[[16,4,"==",1]]],[[0,8],"w"]])";
  EXPECT_EQ(does(kThree, twice, hex(kA) + hex(kB) + hex(0)), "0rw 1rw");
  EXPECT_EQ(does(kThree, twice, hex(kNowhere) + hex(kB) + hex(0)).substr(0, 1), "?");
}

TEST(ProvenAccess, WhatExcludesAnAccessIsPinned) {
  const std::string proven = R"([[[0],"r",[[16,4,"==",1],[20,1,"!=",0]]],[[8],"w"]])";
  using Params = std::vector<PinnedBytes::Piece>;
  Pinned pinned;
  does(kThree, proven, hex(kA) + hex(kB) + hex(0, 4) + hex(0, 4), "[]", true, &pinned);
  EXPECT_EQ(pinned.params.all(), (Params{{16, 4}}));
  does(kThree, proven, hex(kA) + hex(kB) + hex(1, 4) + hex(0, 4), "[]", false, &pinned);
  EXPECT_EQ(pinned.params.all(), (Params{{20, 1}}));
  does(kThree, proven, hex(kA) + hex(kB) + hex(1, 4) + hex(9, 4), "[]", true, &pinned);
  EXPECT_EQ(pinned.params.all(), Params{}) << "nothing is excluded";
}

// An address is another one in the next process, and often in the next step.
TEST(ProvenAccess, AnAddressIsNotPinned) {
  const std::string proven = R"([[[0],"r",[[8,8,"==",0]]],[[8],"w",[[8,8,"!=",0]]]])";
  const auto of = [&](std::uint64_t first, std::uint64_t second, Pinned& pinned) {
    return does("[[0,8],[8,8]]", proven, hex(first) + hex(second), "[]", true, &pinned);
  };
  using Params = std::vector<PinnedBytes::Piece>;
  Pinned pinned;
  EXPECT_EQ(of(kA, kB, pinned), "0r 1rw") << "the first is not touched, and nothing may rely on that";
  EXPECT_EQ(pinned.params.all(), Params{});
  EXPECT_EQ(of(kA, 0, pinned), "0r");
  EXPECT_EQ(pinned.params.all(), (Params{{8, 8}})) << "null is null everywhere";
  // Half of an address is no number, either.
  EXPECT_EQ(does("[[0,8],[8,8]]", R"([[[0],"r",[[12,4,"==",1]]],[[8],"w"]])", hex(kA) + hex(kB), "[]", true, &pinned),
            "0r 1rw");
  EXPECT_EQ(pinned.params.all(), Params{});
}

// The word at byte 8 * blockIdx.y, of three.
TEST(ProvenAccess, WordsThatALaunchTakesByNoIndexMayHoldAnything) {
  const std::string proven =
      R"([[[0,8,16],"r"]],"extents":{"expressions":[["launch",32,0,0,4],["const",32,0,0,3],["<<",32,0,1,0],)"
      R"(["param_at",64,2,0,0]],"counters":[],"groups":[[[0,8,16],"r",[[3,4]],true,[]]],"of_accesses":true})";
  const auto of = [&](std::uint64_t second, std::uint64_t third, Pinned* pinned = nullptr) {
    return does("[[0,24]]", proven, hex(kA) + hex(second) + hex(third), "[]", true, pinned);
  };
  Pinned pinned;
  EXPECT_EQ(of(kB, 0, &pinned), "0r") << "the launch has one block";
  EXPECT_TRUE(pinned.shape);
  EXPECT_EQ(pinned.params.all(), std::vector<PinnedBytes::Piece>{});
  EXPECT_EQ(of(kNowhere, kB, &pinned), "0r");
  EXPECT_TRUE(pinned.shape);
  EXPECT_EQ(pinned.params.all(), std::vector<PinnedBytes::Piece>{});
  EXPECT_EQ(of(kB, kNowhere), "0r");
  EXPECT_EQ(does("[[0,24]]", R"([[[0,8,16],"r"]])", hex(kA) + hex(kNowhere) + hex(kB)).substr(0, 1), "?");
}

// The word at byte 8 * n, of two, where n is the byte at 16 + blockIdx.y.
TEST(ProvenAccess, WhatIsTakenByAnIndexIsPinned) {
  const std::string proven =
      R"([[[0,8],"r"]],"extents":{"expressions":[["launch",32,0,0,4],["number_at",32,0,1,16],["const",32,0,0,3],)"
      R"(["<<",32,1,2,0],["param_at",64,3,0,0]],"counters":[],"groups":[[[0,8],"r",[[4,4]],true,[]]],)"
      R"("of_accesses":true})";
  Pinned pinned;
  const auto of = [&](std::uint64_t first, std::uint64_t second, std::uint64_t which) {
    return does("[[0,24]]", proven, hex(first) + hex(second) + hex(which), "[]", true, &pinned);
  };
  EXPECT_EQ(of(kA, kNowhere, 0), "0r");
  EXPECT_TRUE(pinned.shape);
  EXPECT_EQ(pinned.params.all(), (std::vector<PinnedBytes::Piece>{{16, 4}}));
  EXPECT_EQ(of(kNowhere, kB, 1), "1r");
  EXPECT_EQ(pinned.params.all(), (std::vector<PinnedBytes::Piece>{{16, 4}}));
  EXPECT_EQ(of(kA, kNowhere, 1).substr(0, 1), "?");
}

// The last 8 bytes of the first object are just before the second: an array that is counted from one may begin there.
// The kernel touches the word that it is told.
TEST(ProvenAccess, APointerJustBeforeAnotherObjectIsThereIfWhatIsReachedIsInsideItsOwn) {
  const auto of = [](std::uint64_t count, bool is_told, Pinned* pinned = nullptr) {
    const std::string proven =
        R"([[[0],"r"]],"extents":{"expressions":[["param",64,8,0,0],["param",64,8,0,8],["const",64,0,0,8],)"
        R"(["*",64,1,2,0],["+",64,0,3,0]],"counters":[],"groups":[[[0],"r",[[4,8]],true,[8]]]})";
    test::TraceText text;
    text.image(true);
    text.function("k", "[[0,8],[8,8]]", 0,
                  ",\"proven\":" + (is_told ? proven.substr(0, proven.size() - 1) + ",\"of_accesses\":true}" : proven) +
                      ",\"same_code\":true");
    text.stream();
    text.alloc(kA, kSize);
    text.alloc(kA + kSize, kSize);
    text.launch(0, hex(kA + kSize - 8) + hex(count));
    AnalysisOptions options;
    options.one_kind = true;
    options.step = StepPlace{2, 2, 1};
    const Analysis analysis = text.analyze(options);
    if (pinned != nullptr) *pinned = analysis.evidence.accesses.pinned[0];
    return analysis.evidence.accesses.ops[0].role == OpRole::barrier ? std::string("?") : std::string("known");
  };
  Pinned pinned;
  EXPECT_EQ(of(0, true, &pinned), "known") << "the word itself";
  EXPECT_EQ(pinned.params.all(), (std::vector<PinnedBytes::Piece>{{8, 4}, {12, 4}}));
  EXPECT_EQ(of(1, true), "?") << "the word, and the first of the other object";
  EXPECT_EQ(of(0, false), "?") << "other addresses may be made of it";
}

}  // namespace
}  // namespace nimble::analyzer
