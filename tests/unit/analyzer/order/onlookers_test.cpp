// What ops of other streams could see of a step, and that it keeps the program's order because of that.

#include "analyzer/order/onlookers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

constexpr std::uint64_t kData = 0x10000, kFlag = 0x20000, kRest = 0x30000, kInput = 0x40000, kOther = 0x50000,
                        kHost = 0x100000;

// Steps that others look at: no pattern that repeats.
bool some(int i) { return i == 3 || i == 7 || i == 8 || i == 14 || i == 20; }

// A step of three writes, and what another stream does around each: in no two steps the same, so that it is none of
// the step's.
Analysis analyze(const std::function<void(test::TraceText&, int)>& around, bool waits_in_the_end = true) {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPf", "[[0,8]]");
  text.stream();  // 0: the step's
  text.stream();  // 1
  for (const std::uint64_t memory : {kData, kFlag, kRest, kInput, kOther}) text.alloc(memory, 0x1000);
  text.alloc(kHost, 0x1000, "pinned");
  for (int i = 0; i < 24; ++i) {
    text.copy(kRest, kInput, 64);  // 0
    text.copy(kData, kInput, 64);  // 1
    text.set(kFlag, 4);            // 2
    if (some(i)) around(text, i);
    if (waits_in_the_end) text.synchronize();
  }
  return text.analyze();
}

bool before(const Analysis& analysis, std::size_t from, std::size_t to) {
  return test::closure(analysis.order.reduced)[from][to];
}

void poll(test::TraceText& text, int i) {
  text.copy(kHost, kFlag, 4, 1);
  text.synchronize(1);
  if (i == 3) text.copy(kHost, kData, 64, 1);
  text.synchronize(1);
}

TEST(Onlookers, WithoutObserversDisjointOpsStayUnordered) {
  const Analysis analysis = analyze([](test::TraceText&, int) {});
  ASSERT_EQ(analysis.step.period, 3u);
  EXPECT_FALSE(before(analysis, 1, 2));
}

TEST(Onlookers, WhoPollsAFlagMayTakeItForASignThatAllBeforeItIsDone) {
  const Analysis analysis = analyze(poll);
  ASSERT_EQ(analysis.step.period, 3u);
  EXPECT_TRUE(before(analysis, 1, 2));
  EXPECT_TRUE(before(analysis, 0, 2));
  EXPECT_TRUE(analysis.evidence.accesses.ops[2].tells);
}

TEST(Onlookers, AfterTheHostTheyObserveNothingThatMoves) {
  const Analysis analysis = analyze([](test::TraceText& text, int i) {
    text.synchronize();
    poll(text, i);
  });
  ASSERT_EQ(analysis.step.period, 3u);
  EXPECT_FALSE(before(analysis, 1, 2));
}

TEST(Onlookers, AfterAnEventTheyObserveNothingThatMovesIfTheNextStepFollowsThem) {
  const auto ordered = [](bool back) {
    return [=](test::TraceText& text, int i) {
      text.record(1);
      text.wait(1, 1);
      text.copy(kHost, kFlag, 4, 1);
      if (i == 3) text.copy(kHost, kData, 64, 1);
      text.record(2, 1);
      if (back) text.wait(2);
    };
  };
  for (const bool back : {true, false}) {
    const Analysis analysis = analyze(ordered(back), false);
    ASSERT_EQ(analysis.step.period, 3u) << back;
    EXPECT_EQ(before(analysis, 1, 2), !back);
  }
}

TEST(Onlookers, AKernelMayTouchWhatItIsPassed) {
  for (const auto& [memory, looks] : {std::pair(kFlag, true), {kInput, true}, {kOther, false}}) {
    const Analysis analysis = analyze([&](test::TraceText& text, int i) {
      text.launch(0, test::hex(memory), 1);
      if (i == 3) text.launch(0, test::hex(memory), 1);
      text.synchronize(1);
    });
    ASSERT_EQ(analysis.step.period, 3u);
    ASSERT_TRUE(analysis.others.empty());
    const Step* const kinds[] = {&analysis.step};
    const std::vector<std::uint8_t> watched =
        watched_objects(analysis.input.trace(), *analysis.input.table, kinds, analysis.step, analysis.evidence.accesses,
                        analysis.objects);
    EXPECT_EQ(std::ranges::count(watched, 1) > 0, looks) << memory;
  }
}

// The step finds what another stream has left: the flag first, and then the data.
TEST(Onlookers, WhatOthersLeaveIsFoundInTheOrderInWhichItIsLookedFor) {
  test::TraceText text;
  text.stream();
  text.stream();
  for (const std::uint64_t memory : {kData, kFlag, kRest, kInput, kOther}) text.alloc(memory, 0x1000);
  for (int i = 0; i < 24; ++i) {
    if (some(i)) {
      text.set(kInput, 64, 1);
      text.set(kOther, 4, 1);
      if (i == 3) text.set(kOther, 4, 1);
    }
    text.copy(kFlag, kOther, 4);   // 0: the flag
    text.copy(kData, kInput, 64);  // 1
    text.set(kRest, 64);           // 2
    text.synchronize();
    text.synchronize(1);
  }
  const Analysis analysis = text.analyze();
  ASSERT_EQ(analysis.step.period, 3u);
  EXPECT_TRUE(analysis.evidence.accesses.ops[0].hears);
  EXPECT_TRUE(before(analysis, 0, 1));
}

}  // namespace
}  // namespace nimble::analyzer
