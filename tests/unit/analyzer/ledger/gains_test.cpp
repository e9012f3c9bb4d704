// What is predicted from a ledger: what the host is to blame for goes, and nothing else.
#include "analyzer/ledger/gains.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::TimedStep;

// Two kernels of 10 us that could run side by side, and one of 5 that needs both; 4 and 16 us pass in which the GPU has
// nothing to do.
void branches(TimedStep& timed, bool waits) {
  for (int i = 0; i < 5; ++i) {
    const double at = timed.now();
    timed.kernel(kA, kC, at + 4, 10);
    timed.kernel(kB, kC, at + 14, 10);
    if (waits) timed.takes(29), timed.synchronize();
    if (!waits) timed.pass(30);
    timed.kernel(kC, kA, at + 40, 5);
    timed.pass(12);
  }
}

TEST(Gains, OfAGraphAreTheIdleTimeThatTheHostIsToBlameFor) {
  TimedStep timed;
  branches(timed, /*waits=*/false);
  const Analysis analysis = timed.analyze();
  const Ledger ledger = test::ledger_of(analysis);
  ASSERT_EQ(ledger.step_us, 45);
  const std::optional<Gains> gains = predict_gains(analysis, ledger);
  ASSERT_TRUE(gains);
  EXPECT_DOUBLE_EQ(gains->graph_us, 10 + 10 + 5);
  ASSERT_TRUE(gains->streams_us && gains->replay_us);
  EXPECT_LT(*gains->streams_us, gains->graph_us);
  EXPECT_GE(*gains->streams_us, 10 + 5);
  EXPECT_NE(ledger_text(analysis, ledger, DeviceModel(), 5).find("as one CUDA graph"), std::string::npos);
}

TEST(Gains, LeaveTheTimeInWhichTheHostWaits) {
  TimedStep timed;
  branches(timed, /*waits=*/true);
  const Analysis analysis = timed.analyze();
  const Ledger ledger = test::ledger_of(analysis);
  double waited = 0;
  for (const LedgerEntry& entry : ledger.entries)
    if (entry.cause == LossCause::host_wait) waited += entry.idle_us;
  ASSERT_GT(waited, 0);
  const std::optional<Gains> gains = predict_gains(analysis, ledger);
  ASSERT_TRUE(gains);
  EXPECT_GE(gains->graph_us, 25 + waited);
}

TEST(Gains, AreNotKnownWhereTheHostHasAnotherClock) {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) {
    timed.kernel(kA, kC, 1e9 + 100 * i, 10);
    timed.kernel(kB, kC, 1e9 + 100 * i + 20, 10);
  }
  const Analysis analysis = timed.analyze();
  Ledger ledger = test::ledger_of(analysis);
  ledger.times.one_clock = false;
  EXPECT_FALSE(predict_gains(analysis, ledger));
  EXPECT_EQ(ledger_json(analysis, ledger, DeviceModel()).find("\"predicted\""), std::string::npos);
}

TEST(Gains, OfStreamsAreNotKnownWhereTheProgramHasSeveral) {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) {
    const double at = timed.now();
    timed.kernel(kA, kC, at + 4, 10);
    timed.kernel(kB, kC, at + 4, 10, 8, /*on=*/1);
    timed.pass(40);
  }
  const Analysis analysis = timed.analyze();
  const std::optional<Gains> gains = predict_gains(analysis, test::ledger_of(analysis));
  ASSERT_TRUE(gains);
  EXPECT_FALSE(gains->streams_us);
}

}  // namespace
}  // namespace nimble::analyzer
