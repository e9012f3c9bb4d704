#include "analyzer/step/step_finder.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

struct Net {
  test::TraceText text;
  int function;
  Net() {
    text.image(true);
    function = text.function("_Z3addPfPKf", "[[0,8],[8,8]]");
    text.stream();
    for (std::uint64_t i = 0; i < 8; ++i) text.alloc(0x10000 + 0x1000 * i, 0x1000);
  }
  void add(std::uint64_t out, std::uint64_t in) {
    text.launch(function, test::hex(0x10000 + 0x1000 * out) + test::hex(0x10000 + 0x1000 * in));
  }
  Step find() {
    TraceFile file = text.read();
    return find_step(file.trace, ObjectTable(file.trace));
  }
};

TEST(FindStep, ReportsOccurrencesThatUseTheirObjectsInOtherRoles) {
  Net net;
  // Ten steps; in every third the last kernel reads another of the two buffers.
  for (int i = 0; i < 10; ++i) {
    net.text.set(0x10000, 64);
    net.add(1, 0);
    net.add(2, 1);
    net.add(3, i % 3 == 2 ? 1 : 2);
    net.add(4, 3);
    net.add(5, 4);
    net.add(6, 5);
    net.add(7, 6);
  }
  Step step = net.find();
  ASSERT_EQ(step.period, 8u);
  EXPECT_EQ(step.begins.size(), 10u);
  EXPECT_EQ(step.patterns, 2u);
  EXPECT_EQ(step.same_pattern, 7u);
  EXPECT_EQ(step.representative, 9u);
  EXPECT_TRUE(step.shares_pattern[9]);
  EXPECT_FALSE(step.shares_pattern[2]);
}

TEST(FindStep, DoubleBufferingKeepsThePatternWhereRolesAreTheSame) {
  Net net;
  for (std::uint64_t i = 0; i < 8; ++i) {
    net.text.set(0x10000 + 0x1000 * (i % 2), 64);
    net.add(2, i % 2);
    for (std::uint64_t k = 2; k < 6; ++k) net.add(k + 1, k);
  }
  Step step = net.find();
  EXPECT_EQ(step.period, 6u);
  EXPECT_EQ(step.patterns, 1u);
}

TEST(FindStep, SkipsWhatFailedAndWhatOnlyBuiltAGraph) {
  Net net;
  for (int i = 0; i < 4; ++i) {
    net.add(1, 0);
    net.add(2, 1);
    net.text.call("launch", "\"stream\":0,\"result\":1");
    net.text.call("capture_begin", "\"stream\":0");
    for (int k = 0; k <= i; ++k) net.add(3, 2);
    net.text.call("capture_end", "\"stream\":0");
    net.add(4, 2);
  }
  Step step = net.find();
  EXPECT_EQ(step.period, 3u);
  EXPECT_EQ(step.ops.size(), 12u);
}

TEST(FindStep, SaysWhyThereIsNone) {
  Net net;
  EXPECT_NE(net.find().why_none.find("no op"), std::string::npos);
  net.add(1, 0);
  net.text.set(0x10000, 5);
  EXPECT_NE(net.find().why_none.find("2 ops"), std::string::npos);
}

TEST(StepAt, TakesTheStepThatIsNamedAndFindsItsOthers) {
  Net net;
  for (int i = 0; i < 5; ++i) {
    net.text.set(0x10000, 64);
    net.add(1, 0);
    net.add(2, 1);
    if (i == 2) net.add(7, 6);
  }
  TraceFile file = net.text.read();
  const ObjectTable objects(file.trace);
  const Step found = find_step(file.trace, objects);
  const auto seq = [&](std::uint32_t op) { return file.trace.calls[found.ops[op]].seq; };
  // From the second op of a step to the first of the next: not what would be found.
  const Step step = step_at(file.trace, objects, {seq(4), seq(6), 3});
  ASSERT_EQ(step.period, 3u);
  EXPECT_EQ(step.begins, (std::vector<std::uint32_t>{1, 4, 8, 11}));  // addresses are no part of what an op does
  EXPECT_EQ(step.representative, 1u);
  EXPECT_EQ(step_at(file.trace, objects, {seq(4), seq(6), 0}).begins, step.begins);
  for (const StepPlace& wrong :
       {StepPlace{seq(4), seq(6), 2}, StepPlace{seq(6), seq(4), 0}, StepPlace{seq(4), 999, 0}}) {
    EXPECT_EQ(step_at(file.trace, objects, wrong).period, 0u);
    EXPECT_NE(step_at(file.trace, objects, wrong).why_none.find("does not hold a step"), std::string::npos);
  }
}

}  // namespace
}  // namespace nimble::analyzer
