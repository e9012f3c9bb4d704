#include "analyzer/model/host_time.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

// A step of three launches, in `repeats` repeats; `between(repeat, op)` is called before each op.
template <typename Between>
HostTime times(int repeats, Between between, const std::string& more = "") {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPf", "[[0,8]]");
  text.stream();
  for (std::uint64_t i = 1; i < 4; ++i) text.alloc(i << 16, 0x100);
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (int op = 0; op < 3; ++op) {
      between(text, repeat, op);
      text.launch(0, hex((static_cast<std::uint64_t>(op) + 1) << 16), 0, repeat + 1 < repeats ? more : "");
    }
  const Analysis analysis = text.analyze();
  return host_time(analysis.input.file->trace, analysis.step);
}

TEST(HostTime, IsTheMedianOfWhatTheProgramTakes) {
  const HostTime host = times(7, [](test::TraceText& text, int repeat, int op) {
    if (op == 1) text.pass(repeat == 0 ? 1000 : 5);  // the first time is slow
    if (op == 2) text.pass(repeat);
  });
  EXPECT_EQ(host.before_us, (std::vector<double>{0, 5, 3}));
  EXPECT_EQ(host.repeats, 7u);
}

TEST(HostTime, WaitsForTheGpuAreNotTheProgramsOwn) {
  const HostTime host = times(6, [](test::TraceText& text, int, int op) {
    if (op == 0) return;
    text.pass(4);
    text.synchronize(0);  // which takes 1 us
    text.alloc(9 << 16, 64);
    text.free(9 << 16);  // waits, too
  });
  // The step begins after one of the waits; the other is in the middle of it.
  EXPECT_EQ(std::accumulate(host.before_us.begin(), host.before_us.end(), 0.0), 5) << "and one call that does not wait";
  EXPECT_EQ(host.before_us.front(), 0);
}

TEST(HostTime, RepeatsThatWereProbedDoNotCount) {
  const std::string probed = R"(,"compared":[],"written":[])";
  const auto slow = [](test::TraceText& text, int repeat, int) { text.pass(repeat < 5 ? 900 : 2); };
  const HostTime host = times(6, slow, probed);
  EXPECT_EQ(host.repeats, 1u);
  EXPECT_EQ(host.before_us, (std::vector<double>{0, 2, 2}));
}

// A segment that continued after a pause would be submitted call by call there, each time.
TEST(HostTime, SegmentsEndAtPauses) {
  const auto step = [](double pause_us) {
    test::TraceText text;
    text.image(true);
    text.function("_Z1fPf", "[[0,8]]");
    text.stream();
    for (std::uint64_t i = 1; i < 9; ++i) text.alloc(i << 16, 0x100);
    for (int repeat = 0; repeat < 6; ++repeat)
      for (std::uint64_t op = 1; op < 9; ++op) {
        if (op == 5) text.pass(pause_us);
        text.launch(0, hex(op << 16));
      }
    return text;
  };
  const Analysis analysis = step(kPauseUs + 1).analyze();
  ASSERT_EQ(analysis.step.period, 8u);
  ASSERT_EQ(analysis.cut.pauses.size(), 1u);
  ASSERT_EQ(analysis.cut.segments.segments.size(), 2u);
  EXPECT_EQ(analysis.cut.segments.segments[1].ops.front(), analysis.cut.pauses[0]);
  EXPECT_EQ(step(kPauseUs - 1).analyze().cut.segments.segments.size(), 1u);
  AnalysisOptions whole;
  whole.start_early = false;
  EXPECT_EQ(step(kPauseUs + 1).analyze(whole).cut.segments.segments.size(), 1u);
}

TEST(HostTime, APauseIsHalfOfWhatReplayWaits) {
  const std::map<std::string, double> defaults = {
#define NIMBLE_INTEGER(name, value, least, most, unit, modes, text) {#name, value},
#include "nimble/internal/options.def"
  };
  EXPECT_EQ(defaults.at("hold_us"), 2 * kPauseUs);
}

}  // namespace
}  // namespace nimble::analyzer
