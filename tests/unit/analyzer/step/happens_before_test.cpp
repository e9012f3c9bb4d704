#include "analyzer/step/happens_before.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

struct Program {
  Trace trace;
  std::vector<std::uint32_t> ops;  // indices of calls that are ops

  int stream(StreamKind kind, std::uint32_t context = 0) {
    trace.streams.push_back({context, kind, kNone});
    return static_cast<int>(trace.streams.size()) - 1;
  }
  std::uint32_t call(CallKind kind, int stream, int event = -1, std::uint32_t thread = 0, bool synchronous = false) {
    TraceCall call;
    call.seq = trace.calls.size();
    call.kind = kind;
    call.thread = thread;
    call.synchronous = synchronous;
    if (stream >= 0) call.stream = static_cast<std::uint32_t>(stream);
    if (event >= 0) call.event = static_cast<std::uint32_t>(event);
    trace.calls.push_back(call);
    if (is_op(kind)) ops.push_back(static_cast<std::uint32_t>(trace.calls.size()) - 1);
    return static_cast<std::uint32_t>(ops.size()) - 1;
  }
  std::uint32_t launch(int stream, std::uint32_t thread = 0) { return call(CallKind::launch, stream, -1, thread); }
  HappensBefore order() const { return HappensBefore(trace, ops); }
};

TEST(HappensBefore, OneStreamOrdersAll) {
  Program program;
  int s = program.stream(StreamKind::blocking);
  program.launch(s);
  program.launch(s);
  HappensBefore order = program.order();
  EXPECT_TRUE(order.ordered(0, 1));
  EXPECT_FALSE(order.ordered(1, 0));
  EXPECT_FALSE(order.ordered(0, 0));
}

TEST(HappensBefore, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  Program program;
  int legacy = program.stream(StreamKind::legacy), blocking = program.stream(StreamKind::blocking);
  int apart = program.stream(StreamKind::non_blocking), own = program.stream(StreamKind::per_thread);
  auto a = program.launch(blocking), b = program.launch(apart), c = program.launch(own);
  auto d = program.launch(legacy);
  auto e = program.launch(blocking), f = program.launch(apart), g = program.launch(own);
  HappensBefore order = program.order();
  EXPECT_TRUE(order.ordered(a, d) && order.ordered(c, d));
  EXPECT_FALSE(order.ordered(b, d));
  EXPECT_TRUE(order.ordered(d, e) && order.ordered(d, g));
  EXPECT_FALSE(order.ordered(d, f));
  EXPECT_TRUE(order.ordered(a, g));
  EXPECT_FALSE(order.ordered(a, c));
}

TEST(HappensBefore, TheLegacyStreamOfAnotherContextDoesNotWait) {
  Program program;
  int legacy = program.stream(StreamKind::legacy, 1), blocking = program.stream(StreamKind::blocking, 0);
  auto a = program.launch(blocking), b = program.launch(legacy);
  EXPECT_FALSE(program.order().ordered(a, b));
}

TEST(HappensBefore, AWaitOrdersAfterTheRecordAndNotAfterALaterOp) {
  Program program;
  int one = program.stream(StreamKind::non_blocking), two = program.stream(StreamKind::non_blocking);
  auto a = program.launch(one);
  program.call(CallKind::event_record, one, 7);
  auto b = program.launch(one);
  auto early = program.launch(two);
  program.call(CallKind::event_wait, two, 7);
  auto c = program.launch(two);
  HappensBefore order = program.order();
  EXPECT_TRUE(order.ordered(a, c));
  EXPECT_FALSE(order.ordered(b, c));
  EXPECT_FALSE(order.ordered(a, early));
}

TEST(HappensBefore, AHostWaitCountsForTheThreadThatWaited) {
  for (bool same_thread : {true, false}) {
    Program program;
    int one = program.stream(StreamKind::non_blocking), two = program.stream(StreamKind::non_blocking);
    auto a = program.launch(one, 1);
    program.call(CallKind::stream_synchronize, one, -1, 1);
    auto b = program.launch(two, same_thread ? 1 : 2);
    EXPECT_EQ(program.order().ordered(a, b), same_thread);
  }
}

TEST(HappensBefore, AQueryThatFoundWorkUnfinishedOrdersNothing) {
  for (int result : {0, 600}) {
    Program program;
    int one = program.stream(StreamKind::non_blocking), two = program.stream(StreamKind::non_blocking);
    auto a = program.launch(one);
    program.call(CallKind::stream_synchronize, one);
    program.trace.calls.back().query = true;
    program.trace.calls.back().result = result;
    auto b = program.launch(two);
    EXPECT_EQ(program.order().ordered(a, b), result == 0);
  }
}

// Random programs against the transitive closure of the plain rules.
TEST(HappensBefore, MatchesTheReferenceOnRandomPrograms) {
  Random random(11);
  for (int round = 0; round < 1500; ++round) {
    Program program;
    int streams = 1 + static_cast<int>(random() % 4);
    for (int s = 0; s < streams; ++s) program.stream(static_cast<StreamKind>(random() % 4));
    std::vector<Dag::Edge> edges;  // between ops
    std::map<int, std::uint32_t> last_on, record_of;
    std::map<std::uint32_t, std::vector<std::uint32_t>> known;  // per thread
    int calls = 3 + static_cast<int>(random() % 25);
    program.launch(0);
    last_on[0] = 0;
    for (int i = 0; i < calls; ++i) {
      int s = static_cast<int>(random() % static_cast<unsigned>(streams)), event = static_cast<int>(random() % 3);
      auto thread = static_cast<std::uint32_t>(random() % 2);
      unsigned what = random() % 10;
      if (what == 8) {
        program.call(CallKind::stream_synchronize, s, -1, thread);
        if (last_on.count(s)) known[thread].push_back(last_on[s]);
        continue;
      }
      if (what == 9) {
        program.call(CallKind::event_synchronize, -1, event, thread);
        if (record_of.count(event)) known[thread].push_back(record_of[event]);
        continue;
      }
      CallKind kind = what == 7 ? CallKind::event_record : what == 6 ? CallKind::event_wait : CallKind::launch;
      bool synchronous = what == 5;
      std::uint32_t op = program.call(kind, s, what >= 6 ? event : -1, thread, synchronous);
      StreamKind mine = program.trace.streams[static_cast<std::size_t>(s)].kind;
      for (const auto& [other, last] : last_on) {
        StreamKind peer = program.trace.streams[static_cast<std::size_t>(other)].kind;
        bool waits = other == s || (mine == StreamKind::legacy && peer != StreamKind::non_blocking) ||
                     (peer == StreamKind::legacy && mine != StreamKind::non_blocking);
        if (waits) edges.push_back({last, op});
      }
      if (kind == CallKind::event_wait && record_of.count(event)) edges.push_back({record_of[event], op});
      for (std::uint32_t done : known[thread]) edges.push_back({done, op});
      if (kind == CallKind::event_record) record_of[event] = op;
      if (synchronous) known[thread].push_back(op);
      last_on[s] = op;
    }
    HappensBefore order = program.order();
    auto reached = test::closure(Dag(static_cast<std::uint32_t>(program.ops.size()), edges));
    for (std::uint32_t a = 0; a < program.ops.size(); ++a)
      for (std::uint32_t b = 0; b < program.ops.size(); ++b)
        ASSERT_EQ(order.ordered(a, b), reached[a][b]) << "round " << round << ": " << a << " and " << b;
  }
}

TEST(HappensBefore, AWaitForAContextIsOneForItsOwnStreams) {
  for (int waited_for : {0, 1, -1}) {
    Program program;
    int one = program.stream(StreamKind::non_blocking, 0), two = program.stream(StreamKind::non_blocking, 1);
    int three = program.stream(StreamKind::non_blocking, 1);
    auto a = program.launch(one, 1), b = program.launch(two, 1);
    program.call(CallKind::context_synchronize, -1, -1, 1);
    if (waited_for >= 0) program.trace.calls.back().context = static_cast<std::uint32_t>(waited_for);
    auto c = program.launch(three, 1);
    HappensBefore order = program.order();
    EXPECT_EQ(order.ordered(a, c), waited_for == 0) << waited_for;
    EXPECT_EQ(order.ordered(b, c), waited_for == 1) << waited_for;
  }
}

// It comes true while the kernel runs, or before it begins.
TEST(HappensBefore, AnEventThatALaunchRecordsOrdersNothing) {
  for (bool second : {false, true}) {
    Program program;
    int one = program.stream(StreamKind::non_blocking), two = program.stream(StreamKind::non_blocking);
    int three = program.stream(StreamKind::non_blocking);
    auto a = program.launch(one);
    program.call(CallKind::event_record, one, 7);
    auto b = program.launch(two);
    (second ? program.trace.calls.back().event2 : program.trace.calls.back().event) = 7;
    program.call(CallKind::event_wait, three, 7);
    auto c = program.launch(three);
    HappensBefore order = program.order();
    EXPECT_FALSE(order.ordered(b, c));
    EXPECT_FALSE(order.ordered(a, c)) << "the record is not the event's last one any more";
  }
}

}  // namespace
}  // namespace nimble::analyzer
