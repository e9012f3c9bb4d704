#include "analyzer/step/marked_steps.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

// Ops are sets of as many bytes as the letter says; [ and ] are marks, and a word before [ is the step's name.
test::TraceText trace_of(const std::string& text, int marking_thread = 1) {
  test::TraceText trace;
  const int stream = trace.stream();
  trace.alloc(0x100000, 4096);
  std::string name;
  for (const char c : text) {
    if (c == '[') {
      trace.call("step_begin", name.empty() ? "" : "\"note\":\"" + name + "\"", marking_thread);
      name.clear();
    } else if (c == ']') {
      trace.call("step_end", "", marking_thread);
    } else if (c >= 'A' && c <= 'Z') {
      name += c;
    } else {
      trace.set(0x100000, static_cast<std::uint64_t>(c - 'a' + 1), stream);
    }
  }
  return trace;
}

Step step_of(const test::TraceText& text) {
  const TraceFile file = text.read();
  return find_step(file.trace, ObjectTable(file.trace));
}
Step step_of(const std::string& text) { return step_of(trace_of(text)); }

using Begins = std::vector<std::uint32_t>;

TEST(MarkedSteps, WinOverWhatRepeats) {
  EXPECT_EQ(step_of("abababababab").period, 2u);
  const Step step = step_of("ab[abab]ab[abab]ab");
  EXPECT_EQ(step.period, 4u);
  EXPECT_EQ(step.begins, (Begins{2, 8}));
  EXPECT_EQ(step.marked, 2u);
  EXPECT_EQ(step.prologue(), 2u);
  EXPECT_EQ(step.extras(), 2u);
  EXPECT_EQ(step.epilogue(), 2u);
}

TEST(MarkedSteps, OneIsEnough) {
  const Step step = step_of("xyz[abc]x");
  EXPECT_EQ(step.period, 3u);
  EXPECT_EQ(step.begins, Begins{3});
  EXPECT_EQ(step.representative, 0u);
}

TEST(MarkedSteps, EndWhereTheNextBegins) {
  EXPECT_EQ(step_of("[ab[ab[ab[").begins, (Begins{0, 2, 4}));
  // What the trace breaks off is no step.
  EXPECT_EQ(step_of("[ab[ab[a").begins, (Begins{0, 2}));
}

TEST(MarkedSteps, TheMostFrequentKindIsTheStep) {
  const Step step = step_of("TRAIN[abc]EVALUATE[abc]TRAIN[abc]EVALUATE[de]TRAIN[abx]");
  EXPECT_EQ(step.name, "TRAIN");
  EXPECT_EQ(step.begins, (Begins{0, 6}));
  EXPECT_EQ(step.marked, 5u);
  // Among equals the longest.
  EXPECT_EQ(step_of("[ab][abcd]").begins, Begins{2});
}

TEST(MarkedSteps, WithoutOpsAreNone) {
  EXPECT_EQ(step_of("[][][]ababab").marked, 0u);
  EXPECT_EQ(step_of("[][][]ababab").period, 2u);
  EXPECT_EQ(step_of("]]ababab").period, 2u);
}

TEST(MarkedSteps, OneThreadMarksForAll) {
  EXPECT_EQ(step_of(trace_of("[abab][abab]", 7)).begins, (Begins{0, 4}));
  // Of two that mark, the one that does so more often.
  test::TraceText trace;
  const int stream = trace.stream();
  trace.alloc(0x100000, 4096);
  trace.call("step_begin", "", 2);
  for (int i = 0; i < 3; ++i) {
    trace.call("step_begin", "", 1);
    trace.set(0x100000, 4, stream);
    trace.set(0x100000, 8, stream);
    trace.call("step_end", "", 1);
  }
  trace.call("step_end", "", 2);
  EXPECT_EQ(step_of(trace).begins, (Begins{0, 2, 4}));
}

TEST(MarkedSteps, MakeASchedule) {
  const Analysis analysis = trace_of("xy[abc]").analyze();
  EXPECT_EQ(analysis.plan.status, kExitOk) << analysis.plan.why_no_schedule;
  EXPECT_EQ(analysis.step.period, 3u);
}

}  // namespace
}  // namespace nimble::analyzer
