#include "analyzer/plan/multi_stream_check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

// Six steps on two streams, of which the second is forked from the first and joined to it. `within` puts something in:
// at 0 before the fork, at 1 on the second stream, which no event orders with what the first one does meanwhile, at 2
// after the join.
template <typename Within>
std::string why_not(Within within) {
  test::TraceText text;
  for (int i = 0; i < 3; ++i) text.stream();
  for (std::uint64_t i = 1; i < 6; ++i) text.alloc(i << 16, 0x100);
  constexpr int kFork = 0, kJoin = 1, kOthers = 2;
  text.record(kOthers, 2);
  for (int step = 0; step < 6; ++step) {
    within(text, 0);
    text.set(1 << 16, 64, 0);
    text.record(kFork, 0);
    text.wait(kFork, 1);
    text.set(2 << 16, 64, 0);
    within(text, 1);
    text.set(3 << 16, 64, 1);
    text.record(kJoin, 1);
    text.wait(kJoin, 0);
    within(text, 2);
    text.set(4 << 16, 64, 0);
    text.synchronize(0);
  }
  return text.analyze().cut.streams.why_not;
}

TEST(SeveralStreams, OpsThatWaitForNothingMayBeSerialized) {
  EXPECT_EQ(why_not([](test::TraceText&, int) {}), "");
}

// A graph that holds what the first stream does would wait as well, and the event may be waiting for that.
TEST(SeveralStreams, AWaitForOthersMustNotBeOrderedWithUnorderedOps) {
  for (const int place : {0, 1, 2}) {
    const std::string why = why_not([&](test::TraceText& text, int where) {
      if (where == place) text.wait(2, place == 1 ? 1 : 0);
    });
    if (place == 1) {
      EXPECT_NE(why.find("(event_wait) may be waiting for something else (for an event that the step does not record)"),
                std::string::npos)
          << why;
    } else {
      EXPECT_EQ(why, "") << "in order with all that the other stream does";
    }
  }
}

TEST(SeveralStreams, NorMustAnUnknownOp) {
  for (const int place : {0, 1, 2}) {
    const std::string why = why_not([&](test::TraceText& text, int where) {
      if (where == place) text.call("opaque", place == 1 ? "\"stream\":1" : "\"stream\":0");
    });
    EXPECT_EQ(why.find("(opaque) may be waiting for something else") != std::string::npos, place == 1) << why;
  }
}

}  // namespace
}  // namespace nimble::analyzer
