#include "replayer/relaxed/relaxed_segments.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/schedule_support.h"

namespace nimble {
namespace {

// Launches that touch the objects 0 and 1, side by side; a record after both; then a segment of a single launch that
// touches object 2.
Schedule schedule() {
  Schedule s;
  s.functions = {{"k", {{0, 8}}}};
  s.objects.resize(4, {MemoryKind::device, 64});
  add_launch(s, 0, 0);
  add_launch(s, 0, 1);
  add_op(s, CallKind::event_record, Submit::graph, 0);
  add_launch(s, 1, 2);
  s.segments = {{0, 2, 2, 0, {{0, 2}, {1, 2}}, {0, 1, 2}}, {3, 3, 1, 0, {}, {3}}};
  return s;
}

TEST(RelaxedSegments, AreThoseOfAnotherOrderThanTheProgramsAndUseTheirObjects) {
  const RelaxedSegments segments(schedule());
  EXPECT_TRUE(segments.any());
  EXPECT_TRUE(segments.has(0));
  EXPECT_FALSE(segments.has(1));
  EXPECT_EQ(segments.use_of(0), RelaxedSegments::kRead | RelaxedSegments::kWritten);
  EXPECT_EQ(segments.use_of(2), 0);
  EXPECT_EQ(segments.use_of(3), 0);
  EXPECT_FALSE(segments.use_variables());
}

TEST(RelaxedSegments, WhatIsKnownToBeReadOnlyIs) {
  Schedule s = schedule();
  s.ops[0].writes.emplace();
  EXPECT_EQ(RelaxedSegments(s).use_of(0), RelaxedSegments::kRead);
}

TEST(RelaxedSegments, TheLastRecordIsTheOneBehindAllOthers) {
  Schedule s = schedule();
  EXPECT_TRUE(RelaxedSegments(s).records(0));
  EXPECT_FALSE(RelaxedSegments(s).records(1));
  EXPECT_EQ(RelaxedSegments(s).last_record(0), 2u);
  EXPECT_EQ(RelaxedSegments(s).last_record(1), kNone);
  s.segments[0].edges = {{0, 2}};
  EXPECT_EQ(RelaxedSegments(s).last_record(0), kNone);  // not after the second launch
}

TEST(RelaxedSegments, WhereStepsFollowPointersInMemoryTheyUseEveryObject) {
  Schedule s = schedule();
  s.carries = true;
  EXPECT_EQ(RelaxedSegments(s).use_of(3), RelaxedSegments::kRead | RelaxedSegments::kWritten);
  s.segments[0].edges = {{0, 1}, {1, 2}};  // the program's order
  EXPECT_FALSE(RelaxedSegments(s).any());
  EXPECT_EQ(RelaxedSegments(s).use_of(3), 0);
}

}  // namespace
}  // namespace nimble
