#include "analyzer/ledger/losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kBytes;
using test::kC;
using test::TimedStep;

struct Found {
  std::string cause;
  double begin, end;  // from the repeat's first op
  bool idle;
  bool operator==(const Found&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Found& found) {
  return out << (found.idle ? "idle " : "narrow ") << found.cause << " " << found.begin << " to " << found.end;
}

// Of five equal steps of a program; `step` is called with when the step begins on the trace's clock.
std::vector<Found> losses_of(const std::function<void(TimedStep&, double begin)>& step) {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) step(timed, timed.now());
  const Analysis analysis = timed.analyze();
  const RepeatTimes times = median_repeat(analysis.input.trace(), analysis.step);
  std::vector<Found> found;
  for (const Loss& loss : find_losses(analysis, times, DeviceModel())) {
    const auto rounded = [&](double us) { return std::round((us - times.from_us) * 1000) / 1000; };
    found.push_back({std::string(name(loss.cause)), rounded(loss.begin_us), rounded(loss.end_us), loss.idle});
  }
  return found;
}

TEST(Losses, TheHostsOwnCodeAndItsCalls) {
  // Each call takes 1 us, and the host is at it until 1, 22; the next step begins at 52.
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kB, at + 2, 10, 10000);
    step.pass(20);
    step.kernel(kB, kA, at + 25, 5, 10000);
    step.pass(30);
  });
  EXPECT_EQ(found, (std::vector<Found>{{"host code", 10, 19, true},
                                       {"host call", 19, 20, true},
                                       {"start", 20, 23, true},
                                       {"host code", 28, 50, true},
                                       {"host call", 50, 51, true},
                                       {"start", 51, 52, true}}));
}

TEST(Losses, AWaitForAGpuThatIsDone) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kB, at + 1, 0.5, 10000);
    step.synchronize();
    step.kernel(kB, kA, at + 3, 50, 10000);
    step.pass(50);
  });
  // The step is found to begin after the wait.
  EXPECT_EQ(found, (std::vector<Found>{
                       {"host call", 50, 51, true}, {"host wait", 51.5, 52, true}, {"host call", 52, 53, true}}));
}

TEST(Losses, WhatIsIndependentIsKeptBackByTheProgramsOrder) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 10, 10);
    step.kernel(kB, kC, at + 20, 10);
    step.pass(18);
  });
  ASSERT_EQ(found.size(), 2u) << testing::PrintToString(found);
  EXPECT_EQ(found[0], (Found{"program order", 0, 10, false}));
  EXPECT_EQ(found[1], (Found{"few blocks", 10, 20, false}));
}

TEST(Losses, WhatDependsWaitsForMemory) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 10, 10);
    step.kernel(kB, kA, at + 20, 10);
    step.pass(18);
  });
  ASSERT_EQ(found.size(), 2u) << testing::PrintToString(found);
  EXPECT_EQ(found[0], (Found{"dependency", 0, 10, false}));
}

TEST(Losses, AKernelOfWhichNothingIsKnown) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 10, 10);
    step.unknown(at + 20, 10);
    step.pass(18);
  });
  ASSERT_EQ(found.size(), 2u) << testing::PrintToString(found);
  EXPECT_EQ(found[0], (Found{"evidence", 0, 10, false}));
}

TEST(Losses, AWideKernelLosesNothing) {
  EXPECT_TRUE(losses_of([](TimedStep& step, double at) {
                step.kernel(kA, kC, at + 10, 10, 10000);
                step.kernel(kB, kA, at + 20, 10, 10000);
                step.pass(18);
              }).empty());
}

TEST(Losses, WhatRanUntimedIsNotPutDownToTheHost) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 10, 10, 10000);
    step.unknown(0, -1);
    step.kernel(kB, kA, at + 30, 10, 10000);
    step.pass(27);
  });
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0], (Found{"unknown", 10, 20, true}));
}

TEST(Losses, WithoutACommonClockTheHostIsNotBlamed) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at / 10, 1);
    step.kernel(kB, kA, at / 10 + 1.5, 1);
    step.pass(98);
  });
  ASSERT_EQ(found.size(), 4u) << testing::PrintToString(found);
  EXPECT_EQ(found[0].cause, "dependency");
  EXPECT_EQ(found[1].cause, "unknown");
  EXPECT_EQ(found[2].cause, "few blocks");
  EXPECT_EQ(found[3].cause, "unknown");
}

TEST(Losses, WhatAnotherRepeatLeftIsNoIdleTime) {
  // The second kernel, on a stream of its own, is still running when the next step begins and ends.
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 3, 5, 10000);
    step.kernel(kB, kC, at + 4, 40, 10000, 1);
    step.pass(28);
  });
  EXPECT_TRUE(std::ranges::none_of(found, &Found::idle)) << testing::PrintToString(found);
}

TEST(Losses, ACallThatWaitsForItsOpHadSubmittedIt) {
  // The copy that is waited for begins 20 us after its call did, and the call ends with it.
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 2, 3, 10000);
    step.takes(32);
    step.set(kB, 64, at + 21, 12);
    step.pass(27);
  });
  ASSERT_GE(found.size(), 1u);
  EXPECT_EQ(found[0], (Found{"host call", 3, 19, true}));
}

TEST(Losses, OnAnotherStreamNoOrderKeepsAnOpBack) {
  const auto found = losses_of([](TimedStep& step, double at) {
    step.kernel(kA, kC, at + 10, 10, 8);
    step.kernel(kB, kC, at + 18, 12, 8, 1);
    step.pass(18);
  });
  ASSERT_GE(found.size(), 1u);
  EXPECT_EQ(found[0], (Found{"start", 0, 8, false}));
}

// What holds at one time, by looking at every op: shares nothing with the sweep that it checks.
class Instant {
 public:
  Instant(const Analysis& analysis, const RepeatTimes& times, double now)
      : analysis_(analysis), times_(times), calls_(analysis.step.calls_of(times.occurrence)), now_(now) {
    const auto reached = test::closure(analysis.order.reduced);
    for (std::uint32_t op = 0; op < calls_.size(); ++op) {
      if (times.begin_us[op] <= now && now < times.end_us[op]) running_.insert(op);
      if (times.begin_us[op] <= now) continue;
      if (next_ == kNone || times.begin_us[op] < times.begin_us[next_]) next_ = op;
      bool is_ready = true;
      for (std::uint32_t before = 0; before < op; ++before)
        is_ready = is_ready && (!reached[before][op] || times.end_us[before] <= now);
      if (is_ready) ready_.insert(op);
    }
  }

  bool is_idle() const { return running_.empty(); }
  bool is_narrow() const {
    double multiprocessors = 0;
    for (const std::uint32_t op : running_) {
      const OpCost& cost = analysis_.times.costs[op];
      if (is_bandwidth_bound(cost)) return false;
      multiprocessors += cost.engine == Engine::multiprocessors ? cost.multiprocessors : 0;
    }
    return !is_idle() && multiprocessors < 0.5 * DeviceModel().multiprocessors;
  }

  void check(const Loss& loss) const {
    EXPECT_EQ(loss.idle, is_idle());
    if (is_idle()) return check_idle(loss);
    EXPECT_TRUE(running_.contains(loss.held_by));
    if (ready_.empty() && next_ == kNone) {
      EXPECT_EQ(loss.cause, LossCause::few_blocks);
    } else if (ready_.empty()) {
      EXPECT_EQ(loss.op, next_);
      ASSERT_NE(loss.dependency, nullptr);
      EXPECT_TRUE(running_.contains(loss.dependency->from));
      EXPECT_EQ(loss.dependency->to, next_);
    } else if (std::ranges::any_of(ready_, [&](std::uint32_t op) { return is_submitted(calls_[op]); })) {
      EXPECT_EQ(loss.cause, LossCause::program_order);
      EXPECT_TRUE(ready_.contains(loss.op) && is_submitted(calls_[loss.op]));
    } else {
      EXPECT_TRUE(ready_.contains(loss.op));
      check_host(loss);
    }
  }

 private:
  const Trace& trace() const { return analysis_.input.trace(); }
  static double end_of(const TraceCall& call) { return call.host_begin_us + call.host_duration_us; }
  bool is_submitted(std::uint32_t call) const { return end_of(trace().calls[call]) <= now_; }

  void check_idle(const Loss& loss) const {
    EXPECT_EQ(loss.op, next_);
    if (is_submitted(next_ == kNone ? times_.next_call : calls_[next_]))
      EXPECT_EQ(loss.cause, LossCause::start);
    else
      check_host(loss);
  }
  void check_host(const Loss& loss) const {
    const auto at = std::ranges::find_if(
        trace().calls, [&](const TraceCall& call) { return call.host_begin_us <= now_ && now_ < end_of(call); });
    if (at == trace().calls.end()) {
      EXPECT_EQ(loss.cause, LossCause::host_code);
      return;
    }
    EXPECT_EQ(loss.cause, observes(*at) ? LossCause::host_wait : LossCause::host_call);
    EXPECT_EQ(loss.call, at - trace().calls.begin());
  }

  const Analysis& analysis_;
  const RepeatTimes& times_;
  const std::span<const std::uint32_t> calls_;
  const double now_;
  std::set<std::uint32_t> running_, ready_;
  std::uint32_t next_ = kNone;
};

// Random steps of kernels and sets that share a few objects, in front of a host that is now ahead and now late, on a
// GPU that runs independent ops side by side at times.
Analysis random_steps(test::Random& random) {
  struct Op {
    int kind;
    std::uint64_t to, from;
    int blocks;
    bool waits;
  };
  std::vector<Op> ops(2 + test::below(random, 8));
  const std::uint64_t objects[] = {kA, kB, kC};
  for (Op& op : ops)
    op = {static_cast<int>(test::below(random, 8)), objects[test::below(random, 3)], objects[test::below(random, 3)],
          test::below(random, 3) == 0 ? 10000 : 8, test::below(random, 6) == 0};
  TimedStep timed;
  double gpu = timed.now();
  for (int step = 0; step < 4; ++step)
    for (const Op& op : ops) {
      if (test::below(random, 3) == 0) timed.pass(test::below(random, 20));
      if (op.waits) timed.synchronize();
      // The eighths of microseconds keep sums exact, and times apart from those of calls.
      const double begin = std::max(gpu, timed.now() + 1) + 0.125 + 0.25 * test::below(random, 12);
      const double us = 0.5 + test::below(random, 12);
      if (op.kind == 0)
        timed.unknown(begin, us);
      else if (op.kind == 1)
        timed.set(op.to, 64, begin, us);
      else
        timed.kernel(op.to, op.from, begin, us, op.blocks);
      gpu = begin + us;
    }
  return timed.analyze();
}

TEST(Losses, EachMomentIsPutDownToWhatIsSoThen) {
  test::Random random(20261130);
  std::set<LossCause> causes;
  int checked = 0;
  for (int program = 0; program < 300; ++program) {
    const Analysis analysis = random_steps(random);
    const RepeatTimes times = median_repeat(analysis.input.trace(), analysis.step);
    if (times.repeats == 0) continue;
    const std::vector<Loss> losses = find_losses(analysis, times, DeviceModel());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      causes.insert(losses[i].cause);
      ASSERT_LT(losses[i].begin_us, losses[i].end_us);
      ASSERT_GE(losses[i].begin_us, i == 0 ? times.from_us : losses[i - 1].end_us);
    }
    for (int sample = 0; sample < 60; ++sample) {
      const double now = times.from_us + (times.until_us - times.from_us) * (sample + 0.5) / 60;
      const Instant instant(analysis, times, now);
      const auto at =
          std::ranges::find_if(losses, [&](const Loss& loss) { return loss.begin_us <= now && now < loss.end_us; });
      ASSERT_EQ(at != losses.end(), instant.is_idle() || instant.is_narrow());
      if (at == losses.end()) continue;
      ++checked;
      instant.check(*at);
      if (testing::Test::HasFailure()) FAIL() << "program " << program << ", at " << now - times.from_us;
    }
  }
  EXPECT_GT(checked, 3000);
  EXPECT_EQ(causes.count(LossCause::unknown), 0u);
  EXPECT_GE(causes.size(), 7u);
}

}  // namespace
}  // namespace nimble::analyzer
