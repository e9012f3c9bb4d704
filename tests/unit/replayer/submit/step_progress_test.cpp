#include "replayer/submit/step_progress.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/schedule_support.h"

namespace nimble {
namespace {

// Two segments, of two ops and of one, with a direct op between.
Schedule schedule() {
  Schedule s;
  add_op(s, CallKind::launch, Submit::graph, 0);
  add_op(s, CallKind::launch, Submit::graph, 0);
  add_op(s, CallKind::host_function, Submit::direct);
  add_op(s, CallKind::launch, Submit::graph, 1);
  s.segments = {{0, 1, 1, 0, {}, {0, 1}}, {3, 3, 1, 0, {}, {3}}};
  return s;
}

struct Parts {
  const Schedule schedule = nimble::schedule();
  const StepPaths paths{schedule};
  StepProgress progress{schedule, paths};
};

TEST(StepProgress, SegmentsGoInOrderWhenAllOfTheirOpsHaveCome) {
  Parts parts;
  parts.progress.begin_step(0);
  EXPECT_FALSE(parts.progress.is_ready(1));
  EXPECT_TRUE(parts.progress.is_ready(2));
  EXPECT_EQ(parts.progress.take_segment(), 0u);
  EXPECT_FALSE(parts.progress.is_ready(3));
  EXPECT_TRUE(parts.progress.is_ready(kNone));
  EXPECT_EQ(parts.progress.take_segment(), 1u);
  EXPECT_FALSE(parts.progress.is_ready(kNone));  // there is no more
  parts.progress.begin_step(0);
  EXPECT_TRUE(parts.progress.is_ready(2));
}

TEST(StepProgress, ASegmentPassesUntilTheNextStep) {
  Parts parts;
  parts.progress.begin_step(0);
  EXPECT_FALSE(parts.progress.passes(0));
  parts.progress.pass_segment(0);
  EXPECT_TRUE(parts.progress.passes(0));
  EXPECT_FALSE(parts.progress.passes(1));
  parts.progress.begin_step(0);
  EXPECT_FALSE(parts.progress.passes(0));
}

TEST(StepProgress, KeepsInMindWhatWentCallByCall) {
  Parts parts;
  parts.progress.begin_step(0);
  EXPECT_TRUE(parts.progress.by_graphs());
  parts.progress.by_calls();
  EXPECT_FALSE(parts.progress.by_graphs());
  parts.progress.begin_step(0);
  EXPECT_TRUE(parts.progress.by_graphs());
}

}  // namespace
}  // namespace nimble
