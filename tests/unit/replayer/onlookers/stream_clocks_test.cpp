#include "replayer/onlookers/stream_clocks.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "tests/unit/replayer/onlookers/truth.h"

namespace nimble {
namespace {

using namespace order;  // NOLINT(google-build-using-namespace)

class StreamClocksTest : public testing::Test {
 protected:
  StreamClocks::Op op(const Stream& on, bool good = true) {
    const StreamClocks::Op made = clocks_.arrives(on);
    clocks_.landed(made, good);
    return made;
  }
  void record(CUevent what, const Stream& on, bool good = true) { clocks_.ended(clocks_.records(what, on), good); }
  void wait(const Stream& on, CUevent what, bool good = true) { clocks_.ended(clocks_.waits(on, what), good); }

  StreamClocks clocks_;
};

TEST_F(StreamClocksTest, AStreamKeepsItsOrderAndNoOther) {
  const auto first = op(kA);
  EXPECT_TRUE(clocks_.is_before(first, kA));
  EXPECT_FALSE(clocks_.is_before(first, kB));
  EXPECT_FALSE(clocks_.is_before({}, kA));
}

TEST_F(StreamClocksTest, EventsOrderByWayOfAThirdStream) {
  const auto first = op(kA);
  record(event(1), kA);
  const auto later = op(kA);
  wait(kB, event(1));
  record(event(2), kB);
  EXPECT_FALSE(clocks_.is_before(first, kC));
  wait(kC, event(2));
  EXPECT_TRUE(clocks_.is_before(first, kC));
  EXPECT_FALSE(clocks_.is_before(later, kC));
}

TEST_F(StreamClocksTest, WhatTheDriverRefusesOrdersNothing) {
  const auto first = op(kA);
  record(event(1), kA, /*good=*/false);
  wait(kB, event(1));
  EXPECT_FALSE(clocks_.is_before(first, kB));
  record(event(1), kA);
  wait(kB, event(1), /*good=*/false);
  EXPECT_FALSE(clocks_.is_before(first, kB));
  const auto on_blocking = op(kBlocking);
  op(kLegacy, /*good=*/false);
  EXPECT_FALSE(clocks_.is_before(on_blocking, kThreads));
}

TEST_F(StreamClocksTest, TheLegacyStreamIsInOrderWithThoseOfItsContextThatBlock) {
  const auto on_blocking = op(kBlocking), on_own = op(kA), elsewhere = op(kOtherContext);
  EXPECT_TRUE(clocks_.is_before(on_blocking, kLegacy));
  EXPECT_FALSE(clocks_.is_before(on_own, kLegacy));
  EXPECT_FALSE(clocks_.is_before(elsewhere, kLegacy));
  EXPECT_FALSE(clocks_.is_before(on_blocking, kThreads));
  const auto on_legacy = op(kLegacy);
  EXPECT_TRUE(clocks_.is_before(on_legacy, kBlocking));
  EXPECT_TRUE(clocks_.is_before(on_blocking, kThreads));  // by way of it
  EXPECT_FALSE(clocks_.is_before(on_legacy, kOtherContext));
}

TEST_F(StreamClocksTest, WhatTheHostHasWaitedForIsBeforeAll) {
  const auto on_a = op(kA);
  record(event(1), kA);
  wait(kB, event(1));
  const auto on_b = op(kB), on_c = op(kC);
  clocks_.ended(clocks_.host_waits(kB), /*good=*/false);
  EXPECT_FALSE(clocks_.is_done(on_a));
  clocks_.ended(clocks_.host_waits(kB), /*good=*/true);
  EXPECT_TRUE(clocks_.is_done(on_a));
  EXPECT_TRUE(clocks_.is_before(on_b, kC));
  EXPECT_FALSE(clocks_.is_done(on_c));
  clocks_.ended(clocks_.host_waits_for_context(1), true);
  EXPECT_TRUE(clocks_.is_done(on_c));
}

TEST_F(StreamClocksTest, ACopyThatTheHostWaitsForTellsOfWhatWasBeforeItAlone) {
  const auto before = op(kBlocking);
  const auto copy = clocks_.arrives(kLegacy);
  const auto token = clocks_.host_waits(copy);
  const auto meanwhile = op(kBlocking);
  op(kLegacy);  // so the legacy stream comes after that
  clocks_.landed(copy, true);
  clocks_.ended(token, true);
  EXPECT_TRUE(clocks_.is_done(before));
  EXPECT_TRUE(clocks_.is_done(copy));
  EXPECT_FALSE(clocks_.is_done(meanwhile));
}

TEST_F(StreamClocksTest, WhoWaitsLeavesRoomForRecords) {
  op(kA);
  std::vector<StreamClocks::Token> waiting;
  for (std::size_t i = 0; i < 2 * StreamClocks::kMostCalls; ++i) waiting.push_back(clocks_.host_waits(kA));
  const auto on_b = op(kB);
  record(event(1), kB);
  for (const StreamClocks::Token token : waiting) clocks_.ended(token, true);
  wait(kC, event(1));
  EXPECT_TRUE(clocks_.is_before(on_b, kC));
}

TEST_F(StreamClocksTest, WhatComesBetweenACallsTwoEndsIsNotInIt) {
  const auto before = op(kA);
  const auto token = clocks_.records(event(1), kA);
  const auto meanwhile = op(kA);
  clocks_.ended(token, true);
  wait(kB, event(1));
  EXPECT_TRUE(clocks_.is_before(before, kB));
  EXPECT_FALSE(clocks_.is_before(meanwhile, kB));
  // Nor what was on its way when it began.
  const auto open = clocks_.arrives(kA);
  record(event(1), kA);
  clocks_.landed(open, true);
  wait(kC, event(1));
  EXPECT_TRUE(clocks_.is_before(meanwhile, kC));
  EXPECT_FALSE(clocks_.is_before(open, kC));
}

TEST_F(StreamClocksTest, AnEventThatIsRecordedAnewMeanwhileTellsAWaitNothing) {
  const auto first = op(kA);
  record(event(1), kA);
  const auto token = clocks_.waits(kC, event(1));
  record(event(1), kB);
  clocks_.ended(token, true);
  EXPECT_FALSE(clocks_.is_before(first, kC));
}

TEST_F(StreamClocksTest, OfTwoRecordsAtATimeNobodyCanTellTheLater) {
  const auto on_a = op(kA), on_b = op(kB);
  const auto one = clocks_.records(event(1), kA), other = clocks_.records(event(1), kB);
  clocks_.ended(other, true);
  clocks_.ended(one, true);
  wait(kC, event(1));
  EXPECT_FALSE(clocks_.is_before(on_a, kC));
  EXPECT_FALSE(clocks_.is_before(on_b, kC));
  record(event(1), kA);
  wait(kC, event(1));
  EXPECT_TRUE(clocks_.is_before(on_a, kC));
}

TEST_F(StreamClocksTest, WhatAnEndedStreamStillRunsIsInNoOrder) {
  const auto first = op(kA);
  clocks_.ends(kA.ref);
  EXPECT_FALSE(clocks_.is_before(first, kA));  // another of the same handle
  const auto second = op(kA);
  clocks_.ended(clocks_.host_waits(kA), true);
  EXPECT_TRUE(clocks_.is_done(second));
  EXPECT_FALSE(clocks_.is_done(first));
  clocks_.context_ends(1);
  EXPECT_TRUE(clocks_.is_done(first));
}

TEST_F(StreamClocksTest, OfMoreThanThereIsRoomForNothingIsKnownUntilSomeIsThrough) {
  std::vector<StreamClocks::Op> ops;
  for (std::uint64_t i = 1; i <= StreamClocks::kMostStreams; ++i) ops.push_back(op(stream(0x1000 * i)));
  EXPECT_EQ(op(kA).number, 0u);
  EXPECT_TRUE(clocks_.is_before(ops[5], stream(0x6000)));
  clocks_.ended(clocks_.host_waits(stream(0x6000)), true);
  const auto on_a = op(kA);
  EXPECT_NE(on_a.number, 0u);
  EXPECT_TRUE(clocks_.is_before(on_a, kA));
  EXPECT_FALSE(clocks_.is_before(on_a, kB));
  EXPECT_TRUE(clocks_.is_done(ops[5]));
}

// Threads that make calls of each of which the driver takes at some moment between its two ends.
class Threads {
 public:
  Threads(unsigned seed, std::size_t threads) : random_(seed), calls_(threads) {}

  // How many orders were known and how many there were; -1 for the former where one was not so.
  std::pair<int, int> run(int turns) {
    int known = 0, all = 0;
    for (int turn = 0; turn < turns; ++turn) {
      advance(calls_[below(static_cast<int>(calls_.size()))]);
      if (ops_.empty()) continue;
      for (const Stream& on : kStreams) {
        const auto is_before = truth_.before(on);
        const int number = below(static_cast<int>(ops_.size()));
        const bool is_so = is_before.contains(number),
                   is_known = clocks_.is_before(ops_[static_cast<std::size_t>(number)], on);
        if (is_known && !is_so) return {-1, turn};
        known += is_known;
        all += is_so;
      }
    }
    return {known, all};
  }

 private:
  enum class What { op, record, wait, sync_stream, sync_event };
  struct Call {
    int stage = 0;  // none, on its way, taken
    What what = What::op;
    Stream on;
    CUevent event = nullptr;
    int number = 0;
    StreamClocks::Op op;
    StreamClocks::Token token = 0;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void advance(Call& call) {
    switch (call.stage) {
      case 0: {
        constexpr What kWhats[] = {What::op,   What::op,   What::op,          What::record,    What::record,
                                   What::wait, What::wait, What::sync_stream, What::sync_event};
        call.what = kWhats[below(calls_.size() == 1 && below(4) != 0 ? 7 : 9)];
        call.on = kStreams[static_cast<std::size_t>(below(static_cast<int>(kStreams.size())))];
        call.event = event(static_cast<std::uint64_t>(below(5)));
        begin(call);
        call.stage = 1;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      }
      case 1:
        take(call);
        call.stage = 2;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      default:
        call.what == What::op ? clocks_.landed(call.op, true) : clocks_.ended(call.token, true);
        call.stage = 0;
    }
  }

  void begin(Call& call) {
    switch (call.what) {
      case What::op:
        call.op = clocks_.arrives(call.on);
        call.number = static_cast<int>(ops_.size());
        ops_.push_back(call.op);
        break;
      case What::record:
        call.token = clocks_.records(call.event, call.on);
        break;
      case What::wait:
        call.token = clocks_.waits(call.on, call.event);
        break;
      case What::sync_stream:
        call.token = clocks_.host_waits(call.on);
        break;
      case What::sync_event:
        call.token = clocks_.host_waits(call.event);
        break;
    }
  }
  void take(const Call& call) {
    switch (call.what) {
      case What::op:
        return truth_.op(call.number, call.on);
      case What::record:
        return truth_.record(call.event, call.on);
      case What::wait:
        return truth_.wait(call.on, call.event);
      case What::sync_stream:
        return truth_.host_waits(call.on);
      case What::sync_event:
        return truth_.host_waits(call.event);
    }
  }

  inline static const std::vector<Stream> kStreams = {kA, kB, kC, kLegacy, kBlocking, kThreads, kOtherContext};
  std::mt19937 random_;
  std::vector<Call> calls_;
  std::vector<StreamClocks::Op> ops_;
  StreamClocks clocks_;
  Truth truth_;
};

TEST(StreamClocks, OfOneThreadAllThatIsInOrderIsKnownAndNothingElse) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    const auto [known, all] = Threads(seed, 1).run(300);
    EXPECT_EQ(known, all) << seed;
    EXPECT_GT(all, 100) << seed;
  }
}

TEST(StreamClocks, OfSeveralThreadsNothingIsKnownThatIsNotSo) {
  int known = 0, all = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const auto [k, a] = Threads(seed, 2 + seed % 4).run(600);
    ASSERT_GE(k, 0) << "seed " << seed << ", turn " << a;
    known += k;
    all += a;
  }
  EXPECT_GT(known, all / 2);  // or else it might as well know nothing
}

}  // namespace
}  // namespace nimble
