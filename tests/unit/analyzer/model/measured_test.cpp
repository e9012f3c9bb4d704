#include "analyzer/model/measured.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "analyzer/report/report.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

// Steps of two sets and a copy between them; `times` per step: begin and duration of each op, or nothing.
Analysis timed(const std::vector<std::vector<std::pair<double, double>>>& times) {
  test::TraceText text;
  text.stream();
  text.alloc(0x10000, 0x1000);
  std::string bars;
  std::uint64_t seq = 1;
  for (const auto& step : times) {
    text.set(0x10000, 64);
    text.copy(0x10100, 0x10000, 64);
    text.set(0x10200, 32);
    for (std::size_t op = 0; op < step.size(); ++op)
      text.line(fmt::format(
          R"({{"ph":"X","pid":2,"tid":0,"ts":{},"dur":{},"name":"","cat":"set","args":{{"seq":{},"device":true}}}})",
          step[op].first, step[op].second, seq + op));
    seq += 3;
  }
  return text.analyze();
}

TEST(Measured, MediansOverTheRepeatsThatAreKnown) {
  const Analysis analysis =
      timed({{{0, 1}, {1, 2}, {4, 1}}, {{10, 3}, {13, 2}, {16, 2}}, {{20, 2}, {22, 9}, {31, 4}}, {}});
  ASSERT_EQ(analysis.step.period, 3u);
  EXPECT_EQ(analysis.times.measured.ops, 3u);
  EXPECT_EQ(analysis.times.measured.repeats, 3u);
  EXPECT_EQ(analysis.times.measured.op_us, (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(analysis.times.measured.busy_us, 7);    // of 4, 7, 15
  EXPECT_EQ(analysis.times.measured.span_us, 8);    // of 5, 8, 15
  EXPECT_EQ(analysis.times.costs[1].device_us, 2);  // predictions rest on it
  EXPECT_NE(text_report(analysis).find("busy for 7.0 us of 8.0 us"), std::string::npos);
}

TEST(Measured, OverlappingOpsAreBusyOnce) {
  const Analysis analysis = timed({{{0, 4}, {1, 2}, {3, 3}}, {{0, 4}, {1, 2}, {3, 3}}, {{0, 4}, {1, 2}, {3, 3}}});
  EXPECT_EQ(analysis.times.measured.busy_us, 6);
  EXPECT_EQ(analysis.times.measured.span_us, 6);
}

TEST(Measured, NothingKnownIsNothingClaimed) {
  const Analysis analysis = timed({{}, {}, {}});
  EXPECT_EQ(analysis.times.measured.ops, 0u);
  EXPECT_EQ(analysis.times.measured.op_us, (std::vector<double>{-1, -1, -1}));
  EXPECT_EQ(text_report(analysis).find("measured  "), std::string::npos);
  EXPECT_NE(text_report(analysis).find("predicted by a simple model of the device, not measured"), std::string::npos);
}

}  // namespace
}  // namespace nimble::analyzer
