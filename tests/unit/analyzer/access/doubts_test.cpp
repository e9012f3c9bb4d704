// Launches whose numbers exclude what a kernel may do, and launches whose numbers do not.
#include "analyzer/access/doubts.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;
using Params = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

constexpr std::uint64_t kA = 0x7f1200100000, kB = 0x7f1200200000, kSize = 0x1000;
constexpr const char* kOne = R"(["const",32,0,0,1])";

std::string extents(const std::string& expressions, const std::string& doubts) {
  return R"({"expressions":[)" + expressions + R"(],"counters":[],"groups":[],"doubts":[)" + doubts + "]}";
}

std::string doubt(int happens, const std::string& why = "it may follow an address", bool follows = true) {
  return "[" + std::to_string(happens) + ",\"" + why + "\"," + (follows ? "true" : "false") + "]";
}

// What a launch of a kernel touches that reads by its first word, and may do worse; its second is an array of pointers,
// the third a mode. "0r", or "?" and why not.
std::string does(const std::string& extents, std::uint64_t array, std::uint32_t mode, Pinned* pinned = nullptr,
                 const char* name = "k") {
  test::TraceText text;
  text.image(true);
  text.function(name, "[[0,8],[8,8],[16,4]]", 0,
                R"(,"proven_by_launch":[[[0],"r"]],"same_code":true,"extents":)" + extents);
  text.stream();
  text.alloc(kA, kSize);
  text.alloc(kB, kSize);
  text.launch(0, hex(kA) + hex(array) + hex(mode, 4), 0, ",\"nowhere\":[]");
  AnalysisOptions options;
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

// Where the mode is 3.
const std::string kByMode = extents(
    std::string(kOne) + R"(,["param",32,4,0,16],["const",32,0,0,3],["where",32,1,2,4],["when",32,0,3,0])", doubt(4));

TEST(Doubts, AModeExcludesWhatAnotherModeDoes) {
  Pinned pinned;
  EXPECT_EQ(does(kByMode, kB, 2, &pinned), "0r");
  EXPECT_EQ(pinned.params.all(), (Params{{16, 4}}));
  EXPECT_FALSE(pinned.shape);
  EXPECT_NE(does(kByMode, kB, 3).find("its code proves nothing: it may follow an address"), std::string::npos);
}

TEST(Doubts, APointerThatIsNullExcludesWhatIsDoneByIt) {
  const std::string by_null = extents(
      std::string(kOne) + R"(,["param",64,8,0,8],["const",64,0,0,0],["where",64,1,2,5],["when",32,0,3,0])", doubt(4));
  Pinned pinned;
  EXPECT_EQ(does(by_null, 0, 2, &pinned), "0r");
  EXPECT_EQ(pinned.params.all(), (Params{{8, 4}, {12, 4}})) << "null is null everywhere";
  EXPECT_EQ(does(by_null, kB, 2).substr(0, 1), "?");
  EXPECT_EQ(does(by_null, 0x7f4000000010, 2).substr(0, 1), "?") << "a pointer that the trace does not know";
  const std::string by_pointer = extents(
      std::string(kOne) + R"(,["param",64,8,0,8],["const",64,0,0,0],["where",64,1,2,4],["when",32,0,3,0])", doubt(4));
  EXPECT_EQ(does(by_pointer, kB, 2, &pinned), "0r") << "what points to memory is not null";
  EXPECT_EQ(pinned.params.all(), Params{}) << "a pointer is another in each process";
  EXPECT_EQ(does(by_pointer, 0, 2).substr(0, 1), "?");
}

TEST(Doubts, TheShapeOfALaunchExcludesSomeToo) {
  // Where there is more than one block.
  const std::string by_shape = extents(
      std::string(kOne) + R"(,["launch",32,0,0,10],["const",32,0,0,1],["where",32,1,2,2],["when",32,0,3,0])", doubt(4));
  Pinned pinned;
  EXPECT_EQ(does(by_shape, 0, 0, &pinned), "0r");
  EXPECT_TRUE(pinned.shape);
}

TEST(Doubts, AllOfThemHaveToBeExcluded) {
  // Where the mode is 3; and where it is 4.
  const std::string two =
      extents(std::string(kOne) + R"(,["param",32,4,0,16],["const",32,0,0,3],["where",32,1,2,4],["when",32,0,3,0],)"
                                  R"(["const",32,0,0,4],["where",32,1,5,4],["when",32,0,6,0])",
              doubt(4) + "," + doubt(7, "it reads a texture", false));
  EXPECT_EQ(does(two, kB, 2), "0r");
  EXPECT_NE(does(two, kB, 3).find("it may follow an address"), std::string::npos);
  EXPECT_NE(does(two, kB, 4).find("it reads a texture"), std::string::npos);
}

TEST(Doubts, WhatIsNotKnownExcludesNothing) {
  const auto where = [](const std::string& value) {
    return extents(std::string(kOne) + "," + value + R"(,["const",32,0,0,3],["where",32,1,2,4],["when",32,0,3,0])",
                   doubt(4));
  };
  for (const char* each : {R"(["unknown",32,0,0,0])", R"(["loaded",32,0,0,0])", R"(["up_to",32,0,0,9])"})
    EXPECT_EQ(does(where(each), kB, 2).substr(0, 1), "?") << each;
}

TEST(Doubts, WhoeverMayFollowMemoryIsNotBelievedItsSignature) {
  // Reads by two pointers, as its type says: that holds where it follows none.
  const char* const typed = "_Z1kPKfS0_i";
  EXPECT_EQ(does(kByMode, kB, 2, nullptr, typed), "0r");
  EXPECT_NE(does(kByMode, kB, 3, nullptr, typed).find("its code may follow addresses in memory"), std::string::npos);
}

}  // namespace
}  // namespace nimble::analyzer
