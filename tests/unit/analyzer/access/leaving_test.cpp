// Who is ordered when a launch's numbers lead over the end of an object.
#include "analyzer/access/leaving.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

constexpr std::uint64_t kA = 0x7f1200100000, kSize = 0x1000, kB = kA + kSize, kFar = 0x7f1200200000;

// p + (0 or 1) * the word at byte 8.
constexpr const char* kStride =
    R"(["param",64,8,0,0],["param",64,8,0,8],["up_to",64,0,0,1],["*",64,2,1,0],["+",64,0,3,0])";
std::string extents(const std::string& expressions, const std::string& use, bool complete = true,
                    const std::string& mode = "w", const std::string& numbers = "") {
  return R"({"expressions":[)" + expressions + R"(],"counters":[],"groups":[[[0],")" + mode + "\",[" + use + "]," +
         (complete ? "true" : "false") + ",[" + numbers + "]]]}";
}

// "0rw 1r": what a launch of one kernel touches of three objects, the second of which follows the first at once; its
// own object first.
std::string does(const std::string& extents, std::uint64_t pointer, std::uint64_t number,
                 const std::string& mode = "w") {
  test::TraceText text;
  text.image(true);
  text.function("k", "[[0,8],[8,8]]", 0,
                R"(,"proven":[[[0],")" + mode + R"("]],"same_code":true,"extents":)" + extents);
  text.function("others", "[[0,8],[8,8]]", 0, R"(,"proven":[[[0],"r"],[[8],"r"]],"same_code":true)");
  text.stream();
  text.alloc(kA, kSize);
  text.alloc(kB, kSize);
  text.alloc(kFar, kSize);
  text.launch(0, hex(pointer) + hex(number), 0, ",\"nowhere\":[]");
  // Only what the step names is ordered.
  text.launch(1, hex(kA) + hex(kB), 0, ",\"nowhere\":[]");
  text.launch(1, hex(kB) + hex(kFar), 0, ",\"nowhere\":[]");
  AnalysisOptions options;
  options.one_kind = true;
  options.step = StepPlace{3, 5, 3};
  const Analysis analysis = text.analyze(options);
  const OpAccesses& op = analysis.evidence.accesses.ops[0];
  if (op.role == OpRole::barrier) return "? " + analysis.evidence.accesses.reasons[op.why];
  std::string result;
  for (const Access& access : analysis.evidence.accesses.of(0)) {
    const std::uint64_t base = analysis.input.table->objects()[analysis.objects.objects[access.object].id].base;
    result.append(result.empty() ? "" : " ").append(base == kA ? "0" : base == kB ? "1" : "2");
    result.append(access.reads ? "r" : "").append(access.writes ? "w" : "");
  }
  return result;
}

TEST(Leaving, AStrideLeadsToTheNextBuffer) {
  const std::string stride = extents(kStride, "[4,4]", true, "w", "8");
  EXPECT_EQ(does(stride, kA, 64), "0rw");
  EXPECT_EQ(does(stride, kA, kSize - 4), "0rw") << "the last that is inside";
  EXPECT_EQ(does(stride, kA, kSize - 3), "0rw 1rw") << "its last byte is outside";
  EXPECT_EQ(does(stride, kA, kFar - kA), "0rw 2rw") << "to where a buffer begins";
  EXPECT_EQ(does(stride, kB, std::uint64_t{0} - 4), "1rw 0rw") << "a stride that goes back";
  EXPECT_EQ(does(stride, kB + 4, std::uint64_t{0} - 4), "1rw");
  EXPECT_EQ(does(extents(kStride, "[4,4]", true, "r", "8"), kA, kSize, "r"), "0r 1r");
}

TEST(Leaving, WithoutANumberThatIsAddedItStaysInItsObject) {
  EXPECT_EQ(does(extents(kStride, "[4,4]"), kA, kSize), "0rw");
  EXPECT_EQ(does(extents(kStride, "", false), kA, kFar - kA), "0rw");
}

TEST(Leaving, WhereThereIsNoBoundANumberMayLeadToWhereAnObjectBegins) {
  const std::string none = extents(kStride, "", false, "w", "8");
  EXPECT_EQ(does(none, kA, 24), "0rw");
  EXPECT_EQ(does(none, kA, kSize), "0rw") << "every size leads to the next";
  EXPECT_EQ(does(none, kA, kFar - kA), "0rw 2rw") << "in bytes";
  EXPECT_EQ(does(none, kA, (kFar - kA) / 4), "0rw 2rw") << "in words";
  EXPECT_EQ(does(none, kFar, (kFar - kA) / 4), "2rw 0rw") << "back";
  EXPECT_EQ(does(none, kA, std::uint64_t{0} - (kFar - kA) / 8), "0rw 2rw") << "a negative number that is subtracted";
}

TEST(Leaving, AUseThatIsNeverMadeLeadsNowhere) {
  // p + number, where thread < 0.
  const std::string never =
      extents(R"(["param",64,8,0,0],["launch",32,0,0,0],["const",32,0,0,0],["where",32,1,2,0],["zext",64,3,0,0],)"
              R"(["param",64,8,0,8],["+",64,0,4,0],["+",64,6,5,0])",
              "[7,4]", true, "w", "8");
  EXPECT_EQ(does(never, kA, kSize), "0rw");
}

}  // namespace
}  // namespace nimble::analyzer
