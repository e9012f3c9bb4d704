#include "shim/record/observers/bundle/step_watch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nimble::shim {
namespace {

// Feeds letters, one an op, all of them launches but z; an upper-case letter comes after a point where the host
// observes. Memory was there from the start.
struct Feed {
  StepWatch watch;
  std::vector<std::string> began;  // what was proposed, as "period at op"

  void op(char letter, std::uint64_t memory = 0) {
    const bool observed = letter >= 'A' && letter <= 'Z';
    const std::uint64_t signature = observed ? letter - 'A' + 'a' : letter;
    if (const std::uint32_t period = watch.begins_with(signature))
      began.push_back(std::to_string(period) + " at " + std::to_string(watch.ops()));
    const StepWatch::Pointer pointer{memory, 0};
    watch.add({signature, letter != 'z', observed}, {&pointer, memory != 0 ? 1u : 0u});
  }
  void ops(const std::string& letters) {
    for (const char letter : letters) op(letter);
  }
};

using Began = std::vector<std::string>;

TEST(StepWatch, ProposesTheStepOnceItHasRunThreeTimes) {
  Feed feed;
  feed.ops("xyzabcdabcdabcd");
  EXPECT_TRUE(feed.began.empty());
  feed.ops("a");
  EXPECT_EQ(feed.began, Began{"4 at 15"});
  EXPECT_TRUE(feed.watch.repeats(4));
  feed.ops("bcd");
  EXPECT_TRUE(feed.watch.repeats(4));
}

TEST(StepWatch, ProposesNothingThatTheNextOpContradicts) {
  Feed feed;
  feed.ops("abcdabcdabcdx");
  EXPECT_TRUE(feed.began.empty());
  EXPECT_FALSE(feed.watch.repeats(4));
}

TEST(StepWatch, BeginsWhereTheHostLooks) {
  Feed feed;
  feed.ops("xabCdabCdabCdabCdab");
  EXPECT_EQ(feed.began, (Began{"4 at 15"}));
}

TEST(StepWatch, LayersThatNameOtherMemoryAreNoStep) {
  Feed feed;
  for (int step = 0; step < 5; ++step) {
    feed.op('i', 1);
    for (std::uint64_t layer = 0; layer < 6; ++layer) {
      feed.op('m', 100 + layer);
      feed.op('n', 200 + layer);
    }
    feed.op('o', 2);
  }
  // Proposed each time, since it was not settled.
  ASSERT_FALSE(feed.began.empty());
  EXPECT_EQ(feed.began.front(), "14 at 42");
}

TEST(StepWatch, BuffersThatTakeTurnsTakeLonger) {
  Feed feed;
  for (std::uint64_t i = 0; i < 8; ++i) {
    feed.op('a', 1 + i % 2);
    feed.op('b', 3 + i % 2);
    feed.op('c', 5 + i % 2);
  }
  // By then two steps are seen to name what the two before named.
  ASSERT_FALSE(feed.began.empty());
  EXPECT_EQ(feed.began.front(), "3 at 18");
}

TEST(StepWatch, WhatNamesTheSameMemoryReplacesWhatDoesNot) {
  Feed feed;
  const auto step = [&] {
    for (std::uint64_t layer = 0; layer < 9; ++layer) feed.op('m', 10 + layer);
    feed.op('n', 1);
  };
  step();
  ASSERT_FALSE(feed.began.empty());
  EXPECT_EQ(feed.began.front(), "1 at 6");
  feed.watch.settle(1);
  feed.began.clear();
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(feed.began, Began{"10 at 40"});
}

TEST(StepWatch, WhatLaunchesNothingIsNoStep) {
  Feed feed;
  feed.ops("zzzzzzzzzz");
  EXPECT_TRUE(feed.began.empty());
  feed.ops("zazazazaza");
  EXPECT_EQ(feed.began, (Began{"2 at 16", "2 at 18"}));
}

TEST(StepWatch, AnInnerLoopGivesWayToTheStepThatHoldsIt) {
  Feed feed;
  const std::string step = "ijklmopqrs" + std::string("abababababab");
  feed.ops(step);
  ASSERT_EQ(feed.began.front(), "2 at 16");
  feed.watch.settle(2);
  feed.began.clear();
  feed.ops(step + step + step);
  EXPECT_EQ(feed.began, (Began{"22 at 66"}));
}

TEST(StepWatch, AnEpochDoesNotReplaceTheStepThatItIsMadeOf) {
  Feed feed;
  const std::string epoch = "abcdabcdabcdabcdabcdabcdabcdabcdx";
  feed.ops("abcdabcdabcdabcd");
  ASSERT_EQ(feed.began.front(), "4 at 12");
  feed.watch.settle(4);
  feed.began.clear();
  feed.ops("x");
  for (int i = 0; i < 5; ++i) feed.ops(epoch);
  EXPECT_TRUE(feed.began.empty());
}

TEST(StepWatch, StopsLookingAtSomePoint) {
  StepWatch watch(16);
  for (int i = 0; i < 8; ++i) {
    watch.add({1, true, false}, {});
    watch.add({2, true, false}, {});
  }
  EXPECT_TRUE(watch.full());
  EXPECT_EQ(watch.begins_with(1), 0u);
  watch.add({1, true, false}, {});
  EXPECT_EQ(watch.ops(), 16u);
}

// An inner loop that is settled goes on within a step that holds hardly anything else: it is looked at for each repeat
// of that step, and not for each op.
TEST(StepWatch, WhatIsLookedAtGrowsWithTheOps) {
  std::uint64_t looked_at[2] = {};
  for (const int twice : {0, 1}) {
    Feed feed;
    feed.ops("abababababab");
    feed.watch.settle(2);
    std::string step = "x";
    for (int i = 0; i < 500 << twice; ++i) step += "ab";
    for (int i = 0; i < 8; ++i) feed.ops(step);
    EXPECT_TRUE(feed.watch.repeats(static_cast<std::uint32_t>(step.size())));
    looked_at[twice] = feed.watch.looked_at();
    EXPECT_GT(looked_at[twice], step.size());
    EXPECT_LT(looked_at[twice], 8 * feed.watch.ops());
  }
  EXPECT_LT(looked_at[1], 3 * looked_at[0]);
}

// The proposal is not taken up, as while another step is being saved.
TEST(StepWatch, ALongRunOfOneOpTakesNoLonger) {
  Feed feed;
  for (int i = 0; i < 10'000; ++i) feed.op('a');
  EXPECT_LT(feed.watch.looked_at(), 8 * feed.watch.ops());
}

}  // namespace
}  // namespace nimble::shim
