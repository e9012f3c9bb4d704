#include "analyzer/output/schedule_variants.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace nimble::analyzer {
namespace {

// A kind of step of sets that go to the driver by themselves, of so many bytes each.
KindSchedule kind_of(std::initializer_list<std::uint64_t> widths) {
  KindSchedule kind;
  kind.schedule.objects.push_back({MemoryKind::device, 4096});
  kind.ids.push_back(0);
  for (const std::uint64_t width : widths) {
    ScheduleOp& op = kind.schedule.ops.emplace_back();
    op.kind = width ? CallKind::set : CallKind::copy;
    op.dst.object = 0;
    op.width = width;
  }
  return kind;
}

TEST(KindMerger, AKindThatEndsWhereAnotherDoesIsNoOther) {
  KindMerger merger;
  EXPECT_EQ(merger.add(kind_of({1, 1, 0})), "");
  EXPECT_EQ(merger.add(kind_of({1, 1})), "") << "ends in the middle of the first one";
  EXPECT_EQ(merger.add(kind_of({1, 1})), "it is like another kind of step") << "like the second, not like the first";
  EXPECT_EQ(merger.add(kind_of({1, 1, 0})), "it is like another kind of step");
  EXPECT_EQ(merger.schedule().ends, (std::vector<std::uint32_t>{2, 1}));
}

}  // namespace
}  // namespace nimble::analyzer
