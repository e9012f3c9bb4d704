#include "analyzer/plan/segments.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

struct Program {
  test::TraceText text;
  Program() {
    text.image(true);
    text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
    text.stream();
    text.stream();
    for (std::uint64_t i = 1; i < 9; ++i) text.alloc(i << 16, 0x100);
    text.alloc(9 << 16, 0x100, "pinned");
  }
  void f(std::uint64_t out, std::uint64_t in) { text.launch(0, hex(out << 16) + hex(in << 16)); }
};

// One letter per op: its segment, d for direct, p for planned.
std::string cuts(const Analysis& analysis) {
  std::string result;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op)
    result += analysis.cut.segments.submit[op] == Submit::direct ? 'd'
              : analysis.cut.segments.submit[op] == Submit::plan
                  ? 'p'
                  : static_cast<char>('0' + analysis.cut.segments.segment[op]);
  return result;
}

// Runs `step` six times.
template <typename Step>
Analysis repeat(Step step) {
  Program program;
  for (int i = 0; i < 6; ++i) step(program, i);
  return program.text.analyze();
}

TEST(Segments, OneWhereNothingCuts) {
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.text.set(1 << 16, 64);
              p.f(2, 1);
              p.text.alloc_async(0x9990000, 256);
              p.text.free_async(0x9990000);
              p.f(3, 2);
            })),
            "00pp0");
}

TEST(Segments, AWaitForTheStreamCutsInTheMiddle) {
  auto step = [](Program& p, int at_end) {
    p.text.set(1 << 16, 64);
    p.f(2, 1);
    if (!at_end) p.text.synchronize(0);
    p.f(3, 2);
    p.f(4, 3);
    p.text.synchronize(0);
  };
  Analysis analysis = repeat([&](Program& p, int) { step(p, 0); });
  // The step may begin after either wait; both halves are segments.
  EXPECT_EQ(cuts(analysis), "0011");
  EXPECT_TRUE(analysis.cut.segments.observed_at_end);
  EXPECT_EQ(cuts(repeat([&](Program& p, int) { step(p, 1); })), "0000");
}

TEST(Segments, AWaitForAnotherStreamDoesNotCut) {
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.text.set(1 << 16, 64);
              p.f(2, 1);
              p.text.synchronize(1);
              p.f(3, 2);
              p.f(4, 3);
              p.text.synchronize(0);
            })),
            "0000");
}

TEST(Segments, AWaitThatHappensInHalfOfTheStepsCuts) {
  for (int of_six : {2, 3}) {
    EXPECT_EQ(cuts(repeat([&](Program& p, int i) {
                p.text.set(1 << 16, 64);
                p.f(2, 1);
                if (i < of_six) p.text.synchronize(0);
                p.f(3, 2);
                p.f(4, 3);
                p.text.synchronize(0);
                p.text.synchronize(0);
              })),
              of_six == 3 ? "0011" : "0000");
  }
}

TEST(Segments, AWaitForAnEventCutsOnlyWhereItsRecordIsHeld) {
  auto step = [](Program& p, int i, bool of_this_step) {
    p.text.set(1 << 16, 64);
    p.text.record(of_this_step ? 1 : i % 2);
    p.f(2, 1);
    p.text.call("event_synchronize", "\"event\":" + std::to_string(of_this_step ? 1 : (i + 1) % 2));
    p.f(3, 2);
    p.f(4, 3);
    p.text.synchronize(0);
  };
  EXPECT_EQ(cuts(repeat([&](Program& p, int i) { step(p, i, true); })), "00011");
  EXPECT_EQ(cuts(repeat([&](Program& p, int i) { step(p, i, false); })), "00000");
}

TEST(Segments, AWaitForAnEventOfAnEarlierSegmentDoesNotCut) {
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.text.set(1 << 16, 64);
              p.text.record(1);
              p.text.call("host_function", "\"stream\":0");
              p.f(2, 1);
              p.text.call("event_synchronize", "\"event\":1");
              p.f(3, 2);
              p.f(4, 3);
              p.text.synchronize(0);
            })),
            "00d111");
}

TEST(Segments, AQueryOfTheStreamCuts) {
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.text.set(1 << 16, 64);
              p.f(2, 1);
              p.text.call("stream_synchronize", "\"stream\":0,\"query\":true,\"result\":600");
              p.f(3, 2);
              p.f(4, 3);
              p.text.synchronize(0);
            })),
            "0011");
}

TEST(Segments, WhatNoGraphCanHoldIsDirectAndCuts) {
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.text.set(1 << 16, 64);
              p.f(2, 1);
              p.text.call("host_function", "\"stream\":0");
              p.f(3, 2);
              p.f(4, 3);
              p.text.copy(9 << 16, 4 << 16, 64, 0, ",\"sync\":true");
            })),
            "00d11d");
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.text.copy(1 << 16, 0x7fff12340000, 64);
              p.f(2, 1);
              p.f(3, 2);
              p.text.launch(0, hex(4 << 16) + hex(3 << 16), 0, ",\"coop\":true");
              p.f(5, 4);
              p.f(6, 5);
              p.text.launch(0, hex(7 << 16) + hex(6 << 16), 0, ",\"attrs\":[4]");
            })),
            "d00d11d");
  // Replay cannot make a node for a copy between contexts.
  EXPECT_EQ(cuts(repeat([](Program& p, int) {
              p.f(2, 1);
              p.f(3, 2);
              p.text.copy(1 << 16, 3 << 16, 64, 0, ",\"plain\":false");
              p.f(5, 4);
              p.f(6, 5);
            })),
            "00d11");
}

TEST(Segments, AnOpAloneIsDirect) {
  Analysis analysis = repeat([](Program& p, int) {
    p.text.set(1 << 16, 64);
    p.f(2, 1);
    p.text.call("opaque", "\"stream\":0");
    p.f(3, 2);
    p.text.call("opaque", "\"stream\":0");
    p.text.synchronize(0);
  });
  EXPECT_EQ(cuts(analysis), "00ddd");
  EXPECT_STREQ(analysis.cut.segments.why_direct[3], "alone between two cuts");
}

TEST(Segments, AWaitWithNothingBesideItIsDirectAndTellsNoRecord) {
  Analysis analysis = repeat([](Program& p, int) {
    p.text.set(1 << 16, 64);
    p.f(2, 1);
    p.text.record(0);
    p.text.call("host_function", "\"stream\":0");
    p.text.wait(0, 1);
    p.text.call("host_function", "\"stream\":0");
    p.text.synchronize(0);
  });
  EXPECT_EQ(cuts(analysis), "000ddd");
  EXPECT_EQ(analysis.cut.segments.waits_elsewhere, std::vector<std::uint8_t>(6, 0));
  EXPECT_EQ(analysis.cut.segments.record[4], kNone) << "the schedule does not have it, and must not rest on it";
}

// A graph of the program may record the event again, which no call shows.
TEST(Segments, AWaitAfterAnOpThatMayRecordAnyEventIsDirect) {
  for (const char* kind : {"", "graph_launch", "opaque"}) {
    Analysis analysis = repeat([&](Program& p, int) {
      p.text.set(1 << 16, 64);
      p.text.record(0);
      if (*kind) p.text.call(kind, "\"stream\":0");
      p.text.wait(0, 1);
      p.f(2, 1);
      p.f(3, 2);
      p.text.synchronize(0);
    });
    const std::uint32_t wait = *kind ? 3 : 2;
    EXPECT_EQ(analysis.cut.segments.submit[wait], *kind ? Submit::direct : Submit::order) << kind;
    EXPECT_EQ(analysis.cut.segments.record[wait], *kind ? kNone : 1) << kind;
    EXPECT_EQ(analysis.cut.segments.waits_elsewhere[wait], *kind != 0) << kind;
  }
}

TEST(Segments, AnAllocationThatOutlivesTheStepIsDirect) {
  EXPECT_EQ(cuts(repeat([](Program& p, int i) {
              p.text.alloc_async(0x9000000 + 0x1000 * static_cast<std::uint64_t>(i), 256);
              p.f(2, 1);
              p.f(3, 2);
              p.text.synchronize(0);
            })),
            "d00");
}

}  // namespace
}  // namespace nimble::analyzer
