#include "replayer/bind/object_map.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

// Two external objects of the same kind and size, one of another size, one local to the step.
Schedule schedule() {
  Schedule result;
  result.objects = {{MemoryKind::device, 64},
                    {MemoryKind::device, 64},
                    {MemoryKind::device, 32},
                    {MemoryKind::stream_ordered, 64, true, 0}};
  return result;
}

class ObjectMapTest : public testing::Test {
 protected:
  void SetUp() override {
    memory_.add({1000, 64, MemoryKind::device});
    memory_.add({2000, 64, MemoryKind::device});
    memory_.add({3000, 32, MemoryKind::device});
    memory_.add({4000, 64, MemoryKind::pinned});
  }

  const Schedule schedule_ = schedule();
  MemoryMap memory_;
  ObjectMap map_{schedule_, memory_};
};

TEST_F(ObjectMapTest, BindsByTheFirstPointerAndKeepsToIt) {
  EXPECT_TRUE(map_.accept({0, 0, false}, 1010));
  EXPECT_EQ(map_.base(0), 1000u);
  EXPECT_TRUE(map_.accept({0, 0, false}, 1063));
  EXPECT_FALSE(map_.accept({0, 0, false}, 1064));
  EXPECT_FALSE(map_.accept({0, 0, false}, 2000));  // has been used elsewhere in this step
}

TEST_F(ObjectMapTest, FixedPointersMustHaveTheirOffset) {
  EXPECT_FALSE(map_.accept({0, 8, true}, 1000));
  EXPECT_TRUE(map_.accept({0, 8, true}, 1008));
}

TEST_F(ObjectMapTest, SizeAndKindMustBeTheRecordedOnes) {
  EXPECT_FALSE(map_.accept({0, 0, false}, 3000));
  EXPECT_FALSE(map_.accept({0, 0, false}, 4000));
  EXPECT_FALSE(map_.accept({0, 0, false}, 5000));
}

// A call that turns out to be another op has no effect: neither new addresses nor marks of use.
TEST_F(ObjectMapTest, WhatAnAttemptHasAcceptedIsUndone) {
  EXPECT_TRUE(map_.accept({0, 0, false}, 1000));
  EXPECT_TRUE(map_.accept({1, 0, false}, 2000));
  map_.begin_step();
  map_.attempt();
  EXPECT_TRUE(map_.accept({0, 0, false}, 2000));  // taken from the other
  EXPECT_FALSE(map_.accept({0, 0, false}, 1000));
  map_.undo();
  EXPECT_EQ(map_.base(0), 1000u);
  EXPECT_EQ(map_.base(1), 2000u);
  const auto before = map_.generation();
  EXPECT_TRUE(map_.accept({1, 0, false}, 2000));
  EXPECT_TRUE(map_.accept({0, 0, false}, 1000));
  EXPECT_EQ(map_.generation(), before);
  map_.attempt();
  EXPECT_FALSE(map_.accept({0, 0, false}, 2000));
  map_.undo();
  EXPECT_FALSE(map_.accept({0, 0, false}, 2000)) << "what was accepted earlier stays";
}

TEST_F(ObjectMapTest, TwoObjectsNeverShareAnAllocation) {
  EXPECT_TRUE(map_.accept({0, 0, false}, 1000));
  EXPECT_FALSE(map_.accept({1, 0, false}, 1020));
}

TEST_F(ObjectMapTest, BuffersMaySwapBetweenSteps) {
  EXPECT_TRUE(map_.accept({0, 0, false}, 1000));
  EXPECT_TRUE(map_.accept({1, 0, false}, 2000));
  const auto before = map_.generation();
  map_.begin_step();
  EXPECT_TRUE(map_.accept({0, 0, false}, 2000));
  EXPECT_GT(map_.generation(), before);
  EXPECT_FALSE(map_.accept({1, 0, false}, 2000));  // the step already uses it as object 0
  EXPECT_TRUE(map_.accept({1, 0, false}, 1000));
}

TEST_F(ObjectMapTest, FreedMemoryIsForgotten) {
  EXPECT_TRUE(map_.accept({0, 0, false}, 1000));
  map_.freed(1000);
  memory_.remove(1000);
  EXPECT_EQ(map_.base(0), 0u);
  EXPECT_FALSE(map_.accept({0, 0, false}, 1000));
}

TEST_F(ObjectMapTest, StepLocalObjectsGoWhereTheyArePlaced) {
  EXPECT_FALSE(map_.accept({3, 0, false}, 1000));
  map_.place(3, 9000);
  EXPECT_TRUE(map_.accept({3, 0, false}, 9063));
  EXPECT_FALSE(map_.accept({3, 0, false}, 9064));
}

TEST_F(ObjectMapTest, TheReplayersOwnMemoryStandsForNoObject) {
  memory_.add({7000, 64, MemoryKind::device, true});
  EXPECT_FALSE(map_.accept({0, 0, false}, 7000));
}

// One call may end several mappings: what is allocated there later is another object.
TEST_F(ObjectMapTest, AFreeOfARangeEndsAllThatBeginsInIt) {
  EXPECT_TRUE(map_.accept({0, 0, false}, 1000));
  EXPECT_TRUE(map_.accept({1, 0, false}, 2000));
  EXPECT_TRUE(map_.accept({2, 0, false}, 3000));
  memory_.remove(900, 1200);
  map_.freed(900, 1200);
  EXPECT_EQ(map_.base(0), 0u);
  EXPECT_EQ(map_.base(1), 0u);
  EXPECT_EQ(map_.base(2), 3000u);
  EXPECT_EQ(memory_.find(1000), nullptr);
  EXPECT_EQ(memory_.find(2000), nullptr);
  EXPECT_NE(memory_.find(3000), nullptr);
}

}  // namespace
}  // namespace nimble
