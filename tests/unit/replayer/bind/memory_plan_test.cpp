#include "replayer/bind/memory_plan.h"

#include <gtest/gtest.h>

#include "replayer/bind/step_memory.h"

namespace nimble {
namespace {

constexpr std::uint64_t kArena = 0x10000;

// One object of the program's, and three of the step: the second and the third share bytes.
Schedule schedule(std::uint32_t streams = 1) {
  Schedule s;
  s.objects = {{MemoryKind::device, 64},
               {MemoryKind::stream_ordered, 64, true, 0},
               {MemoryKind::stream_ordered, 64, true, 64},
               {MemoryKind::stream_ordered, 64, true, 96}};
  s.arena_bytes = 256;
  s.streams.resize(streams);
  return s;
}

struct Parts {
  explicit Parts(std::uint32_t streams = 1) : schedule(nimble::schedule(streams)) {}
  const Schedule schedule;
  StepMemory memory{schedule};
  MemoryPlan plan{schedule, memory.objects()};
};

TEST(MemoryPlan, PlacesTheStepsOwnObjects) {
  Parts parts;
  EXPECT_FALSE(parts.plan.is_placed());
  parts.plan.place(kArena);
  EXPECT_TRUE(parts.plan.is_placed());
  EXPECT_EQ(parts.memory.objects().base(0), 0u);
  EXPECT_EQ(parts.memory.objects().base(2), kArena + 64);
  parts.plan.forget_places();
  EXPECT_FALSE(parts.plan.is_placed());
}

TEST(MemoryPlan, FindsWhatTheProgramHas) {
  Parts parts;
  EXPECT_EQ(parts.plan.begins_at(64), kNone);
  parts.memory.objects().take(2, true);
  EXPECT_EQ(parts.plan.begins_at(64), 2u);
  EXPECT_EQ(parts.plan.begins_at(96), kNone);
  EXPECT_EQ(parts.plan.holds(127), 2u);
  EXPECT_EQ(parts.plan.holds(128), kNone);
  EXPECT_EQ(parts.plan.bytes_in_use(), 64u);
}

TEST(MemoryPlan, OnOneStreamOnlyWhatWasLeftOverIsInUse) {
  Parts parts;
  parts.memory.objects().take(2, true);
  EXPECT_FALSE(parts.plan.is_in_use(3));  // of this step: the plan knows
  parts.plan.begin_step(true);
  EXPECT_TRUE(parts.plan.serves());
  EXPECT_TRUE(parts.plan.is_in_use(2));
  EXPECT_TRUE(parts.plan.is_in_use(3));  // shares bytes with it
  EXPECT_FALSE(parts.plan.is_in_use(1));
  parts.memory.objects().take(2, false);
  EXPECT_FALSE(parts.plan.is_in_use(3));
}

TEST(MemoryPlan, OnSeveralStreamsEverythingIs) {
  Parts parts(2);
  parts.memory.objects().take(2, true);
  EXPECT_TRUE(parts.plan.is_in_use(3));
  EXPECT_FALSE(parts.plan.is_in_use(1));
}

TEST(MemoryPlan, AnAllocationOfTheDriversIsTheObjectsOfTheThreadThatMakesIt) {
  Parts parts;
  parts.memory.add({0x5000, 64, MemoryKind::stream_ordered});
  parts.plan.allocates(1, 7);
  parts.plan.allocated(0x4000, 8);
  EXPECT_EQ(parts.memory.objects().base(1), 0u);
  parts.plan.allocated(0x5000, 7);
  EXPECT_EQ(parts.memory.objects().base(1), 0x5000u);
  parts.plan.allocated(0x6000, 7);  // the next one is none of the step's
  EXPECT_EQ(parts.memory.objects().base(1), 0x5000u);
}

}  // namespace
}  // namespace nimble
