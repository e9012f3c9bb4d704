#include "replayer/step/step_search.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

Schedule schedule() {
  Schedule schedule;
  schedule.functions.resize(1);
  schedule.functions[0].name = "relu";
  schedule.ops.resize(3);
  schedule.ops[0].kind = CallKind::set;
  schedule.ops[1].kind = CallKind::launch;
  schedule.ops[1].function = 0;
  schedule.ops[2].kind = CallKind::copy;
  return schedule;
}

TEST(StepSearch, NothingCame) { EXPECT_EQ(StepSearch().why(schedule()), "no call was its first, op 0 (set)"); }

TEST(StepSearch, TheFirstOfThoseThatCameFurthest) {
  StepSearch search;
  search.note(1, 3, 1, "another grid", kNone);
  EXPECT_EQ(search.why(schedule()), "at most 1 of its 3 ops came, and then not op 1 (launch relu): another grid");
  search.note(2, 3, 2, "another size", kNone);
  search.note(2, 3, 2, "another direction", kNone);
  search.note(1, 3, 1, "another block", kNone);
  EXPECT_EQ(search.why(schedule()), "at most 2 of its 3 ops came, and then not op 2 (copy): another size");
}

TEST(StepSearch, WhereAKernelsParametersDiffered) {
  StepSearch search;
  search.note(1, 2, 1, "a number differs", 8);
  EXPECT_EQ(
      search.why(schedule()),
      "at most 1 of its 2 ops came, and then not op 1 (launch relu): a number differs, in byte 8 of its parameters");
}

TEST(StepSearch, TheProgramEnded) {
  StepSearch search;
  search.note(2, 3, kNone, "the program ended", kNone);
  EXPECT_EQ(search.why(schedule()), "at most 2 of its 3 ops came, and then the program ended");
}

}  // namespace
}  // namespace nimble
