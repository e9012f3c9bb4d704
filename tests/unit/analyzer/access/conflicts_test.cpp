#include "analyzer/access/conflicts.h"

#include <gtest/gtest.h>

#include "analyzer/report/counts.h"
#include "analyzer/report/report.h"
#include "tests/unit/analyzer/watched_case.h"

namespace nimble::analyzer {
namespace {

using test::accesses;
using test::Case;
using test::declared;
using test::hex;
using test::kCode;
using test::object;
using test::probed;

TEST(Conflict, ADeclaredReadThatWasWrittenIsAWrite) {
  Case lie = declared();
  EXPECT_EQ(accesses(lie.analyze()), "0r 1rw");
  lie.first = [](int step) { return step == 2 ? probed({0}, {0}) : std::string(); };
  Analysis analysis = lie.analyze();
  EXPECT_EQ(analysis.evidence.accesses.ops[0].evidence, Evidence::declared);
  EXPECT_EQ(accesses(analysis), "0rw 1rw");
  ASSERT_EQ(analysis.evidence.conflicts.size(), 1u);
  EXPECT_EQ(conflict_text(analysis, analysis.evidence.conflicts[0]),
            "kernel f, parameter 0: its signature (declared) says that it is only read, but it was seen to be written "
            "in 1 of 1 launches, first at seq 13");
  EXPECT_EQ(analysis.plan.status, kExitOk) << "the schedule is made all the same";
  EXPECT_NE(text_report(analysis).find("Conflicts of evidence"), std::string::npos);
  EXPECT_NE(json_report(analysis).find(R"("said_by": "its signature")"), std::string::npos);
}

TEST(Conflict, ItHoldsForAllLaunchesOfTheKernel) {
  Case lie = declared();
  lie.first = [](int) { return std::string(); };
  lie.before = [](test::TraceText& text) {
    text.launch(0, hex(object(2)) + hex(object(3)), 0, probed({2, 3}, {2, 3}));
    text.set(object(0), 16);
  };
  Analysis analysis = lie.analyze();
  EXPECT_EQ(accesses(analysis), "0rw 1rw");
  EXPECT_EQ(analysis.evidence.conflicts.size(), 1u);
}

TEST(Conflict, WhatIsWrittenThroughAnotherPointerIsNone) {
  Case in_place = declared();
  in_place.first = [](int step) { return step == 0 ? probed({0}, {0}) : std::string(); };
  in_place.words = [](int step) { return hex(object(0)) + hex(object(step == 0 ? 0 : 1)); };
  Analysis analysis = in_place.analyze();
  EXPECT_TRUE(analysis.evidence.conflicts.empty());
  EXPECT_EQ(accesses(analysis), "0r 1rw");
}

TEST(Conflict, AProvenReadIsNoExceptionAndWhatWasNotProvenToBeTouchedNeither) {
  Case proof;
  proof.more = std::string(kCode) + R"(,"proven":[[[0],"r"]],"same_code":true)";
  proof.first = [](int) { return std::string(); };
  EXPECT_EQ(accesses(proof.analyze()), "0r");
  proof.first = [](int) { return probed({0, 1}, {0, 1}); };
  Analysis analysis = proof.analyze();
  EXPECT_EQ(analysis.evidence.accesses.ops[0].evidence, Evidence::proven);
  EXPECT_EQ(accesses(analysis), "0rw 1rw");
  ASSERT_EQ(analysis.evidence.conflicts.size(), 2u);
  EXPECT_NE(conflict_text(analysis, analysis.evidence.conflicts[0]).find("its code (proven) says that it is only read"),
            std::string::npos);
  EXPECT_NE(conflict_text(analysis, analysis.evidence.conflicts[1]).find("does not say that it is touched"),
            std::string::npos);
}

TEST(Conflict, AValueThatWasWrittenThroughIsAPointer) {
  test::TempFile file(R"({"nimble_rules":1,"rules":[{"kernel":".*opaque.*","params":["value","out"]}]})");
  AnalysisOptions options = test::believing();
  options.rules.read(file.path());
  Case value;
  value.first = [](int) { return std::string(); };
  Analysis before = value.text().analyze(options);
  EXPECT_EQ(accesses(before), "1rw");
  EXPECT_EQ(before.evidence.accesses.no_pointers[0], std::vector<std::uint32_t>{0});
  value.first = [](int) { return probed({0, 1}, {0, 1}); };
  Analysis after = value.text().analyze(options);
  EXPECT_EQ(accesses(after), "1rw 0rw");
  EXPECT_TRUE(after.evidence.accesses.no_pointers[0].empty());
  ASSERT_EQ(after.evidence.conflicts.size(), 1u);
  EXPECT_EQ(after.evidence.conflicts[0].basis, "the rule \".*opaque.*\"");
}

// A list that a launch uses in part: the rest is left over from the previous one, which wrote there.
TEST(Conflict, WhatALongerListWroteIsNoneForAShorter) {
  test::TempFile file(
      R"({"nimble_rules":1,"rules":[{"kernel":".*opaque.*","params":[{"words":[[0,{"largest":[16,1]},"inout"]]}]}]})");
  AnalysisOptions options = test::believing();
  options.rules.read(file.path());
  const auto list = [](int last) { return hex(object(0)) + hex(object(1)) + hex(static_cast<std::uint64_t>(last)); };
  Case lists;
  lists.params = "[[0,24]]";
  lists.words = [&](int) { return list(0); };
  lists.first = [](int) { return std::string(); };
  lists.before = [&](test::TraceText& text) { text.launch(0, list(1), 0, probed({0, 1}, {0, 1})); };
  const Analysis analysis = lists.text().analyze(options);
  EXPECT_TRUE(analysis.evidence.conflicts.empty());
  EXPECT_EQ(accesses(analysis), "0rw");
  EXPECT_EQ(analysis.evidence.accesses.no_pointers[0], (std::vector<std::uint32_t>{8, 16}));
  // Here a shorter one did: the rule is wrong, and not only where the same words lead to one object again.
  Case wrong = lists;
  wrong.params = "[[0,32]]";
  test::TempFile longer(
      R"({"nimble_rules":1,"rules":[{"kernel":".*opaque.*","params":[{"words":[[0,{"largest":[24,1]},"inout"]]}]}]})");
  AnalysisOptions others = test::believing();
  others.rules.read(longer.path());
  const auto three = [](std::uint64_t third, int last) {
    return hex(object(0)) + hex(object(1)) + hex(third) + hex(static_cast<std::uint64_t>(last));
  };
  wrong.words = [&](int) { return three(7, 0); };
  wrong.before = [&](test::TraceText& text) {
    text.launch(0, three(7, 1), 0, probed({0, 1}, {0, 1}));
    text.launch(0, three(object(1), 0), 0, probed({0, 1}, {0, 1}));
  };
  const Analysis also = wrong.text().analyze(others);
  EXPECT_EQ(also.evidence.conflicts.size(), 1u);
  EXPECT_EQ(accesses(also), "0rw 1rw");
  lists.first = [](int step) { return step == 2 ? probed({0, 1}, {0, 1}) : std::string(); };
  const Analysis refuted = lists.text().analyze(options);
  EXPECT_EQ(refuted.evidence.conflicts.size(), 1u);
  EXPECT_EQ(accesses(refuted), "0rw 1rw");
}

TEST(Conflict, IsFoundWhateverIsTrusted) {
  Case lie = declared();
  lie.first = [](int) { return probed({0, 1}, {0, 1}); };
  Analysis analysis = lie.analyze(Evidence::declared);
  EXPECT_EQ(accesses(analysis), "0rw 1rw");
  EXPECT_EQ(analysis.evidence.conflicts.size(), 1u);
  EXPECT_TRUE(lie.analyze(Evidence::proven).evidence.conflicts.empty()) << "no source answered";
}

}  // namespace
}  // namespace nimble::analyzer
