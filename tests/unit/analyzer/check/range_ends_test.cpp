// A region's launch names two adjacent pieces of memory.
#include "analyzer/check/range_ends.h"

#include <gtest/gtest.h>

#include "analyzer/service.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::shim {
namespace {

using analyzer::test::hex;
using analyzer::test::TraceText;

constexpr std::uint64_t kOlder = 0x700000000000, kFirst = 0x7f0000000000, kSize = 1024;

// What is said of a region that allocates kSize bytes at kFirst, launches a kernel with two pointers, and releases
// them.
std::string said(const std::string& kernel, std::uint64_t a, std::uint64_t b, std::uint64_t other = kFirst + kSize,
                 const std::string& proof = "", bool in_order = true, const std::vector<std::string>& rules = {}) {
  TraceText text;
  text.image(true);
  text.stream();
  text.alloc(kOlder, kSize);
  const int function = text.function(kernel, "[[0,8],[8,8],[16,4]]", 0, proof);
  const int plain = text.function("_Z3setPji", "[[0,8],[8,4]]");
  text.call("step_begin", "");
  text.alloc_async(in_order ? kFirst : other, kSize);
  text.alloc_async(in_order ? other : kFirst, kSize);
  text.launch(plain, hex(kFirst) + hex(256, 4));
  text.launch(plain, hex(other) + hex(256, 4));
  text.launch(function, hex(a) + hex(b) + hex(7, 4));
  text.free_async(kFirst);
  text.free_async(other);
  text.call("step_end", "");
  analyzer::KeptRules kept(rules);
  const RegionSchedule found = region_schedule({{nullptr, text.str()}}, {}, kept, Evidence::declared);
  EXPECT_EQ(found.text.empty(), !found.why_not.empty());
  return found.why_not;
}

TEST(RangeEnds, TwoOfOneTypeThatLieSideBySideMayBeARange) {
  EXPECT_EQ(said("_Z4spanPjS_i", kFirst, kFirst + kSize), "") << "the plan has them side by side, too";
  const std::string why_not = said("_Z4spanPjS_i", kFirst, kFirst + kSize, kFirst + kSize, "", false);
  EXPECT_NE(why_not.find("byte 8 of its parameters may be the end of one allocation"), std::string::npos) << why_not;
}

TEST(RangeEnds, ApartOrOfOtherTypesTheyAreNone) {
  EXPECT_EQ(said("_Z4spanPjS_i", kFirst, kFirst + 2 * kSize, kFirst + 2 * kSize), "");
  EXPECT_EQ(said("_Z4spanPKjPji", kFirst, kFirst + kSize, kFirst + kSize, "", false), "");
  EXPECT_EQ(said("_Z4spanPjPKfi", kFirst, kFirst + kSize, kFirst + kSize, "", false), "");
}

// Not moved, but its neighbour is.
TEST(RangeEnds, OlderMemoryCountsToo) {
  EXPECT_NE(said("_Z4spanPjS_i", kOlder, kOlder + kSize, kOlder + kSize), "");
  EXPECT_EQ(said("_Z4spanPjS_i", kOlder, kFirst), "");
}

TEST(RangeEnds, WhatTheCodeFollowsIsNoEnd) {
  const std::string proof = R"(,"proven":[[[0],"w"],[[8],"r"]],"same_code":true)";
  EXPECT_EQ(said("_Z4spanPjS_i", kFirst, kFirst + kSize, kFirst + kSize, proof, false), "");
}

TEST(RangeEnds, NorWhatARuleSays) {
  const auto with_rule = [](const std::string& mode) {
    const analyzer::test::TempFile rules(
        R"({"nimble_rules": 1, "rules": [{"kernel": "span\\(.*", "params": ["out", ")" + mode + R"(", "value"]}]})");
    return said("_Z4spanPjS_i", kFirst, kFirst + kSize, kFirst + kSize, "", false, {rules.path()});
  };
  EXPECT_EQ(with_rule("in"), "");
  EXPECT_NE(with_rule("scan"), "");
}

}  // namespace
}  // namespace nimble::shim
