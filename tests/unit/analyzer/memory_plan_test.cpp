#include "analyzer/memory_plan.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

StepObject local(std::uint64_t size, std::uint32_t alloc, std::uint32_t free) {
  StepObject object;
  object.size = size;
  object.step_local = true;
  object.alloc = alloc;
  object.free = free;
  return object;
}

TEST(MemoryPlan, GivesEveryObjectItsOwnAlignedPlaceInTheOrderOfAllocation) {
  StepObjects objects;
  objects.objects = {local(100, 2, 3), local(256, 0, 1), StepObject{}, local(1, 4, 5)};
  MemoryPlan plan = plan_memory(objects, 6);
  EXPECT_TRUE(plan.possible);
  EXPECT_EQ(plan.offset, (std::vector<std::uint64_t>{256, 0, 0, 512}));
  EXPECT_EQ(plan.arena_bytes, 768u);
  EXPECT_EQ(plan.program_peak_bytes, 256u);
}

TEST(MemoryPlan, SaysWhenItIsImpossible) {
  StepObjects objects;
  objects.objects = {local(kMaxArenaBytes, 0, 1), local(1, 2, 3)};
  EXPECT_FALSE(plan_memory(objects, 4).possible);
  objects.objects = {local(~std::uint64_t{0}, 0, 1)};
  EXPECT_FALSE(plan_memory(objects, 2).possible);
  objects.objects = {local(kMaxArenaBytes - 1, 0, 1)};
  EXPECT_TRUE(plan_memory(objects, 2).possible);
}

}  // namespace
}  // namespace nimble::analyzer
