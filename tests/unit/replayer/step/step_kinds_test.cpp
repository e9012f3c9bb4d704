// Programs with several kinds of step: which kind a step is shows where kinds part; each is bound when it has come
// once, and replayed from then on, whatever the others do in between.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/order_driver.h"
#include "tests/unit/replayer/schedule_support.h"

namespace nimble {
namespace {

// Kinds of step as a random tree of launches on one stream. What can follow an op is told apart by the launch shape.
class RandomKinds {
 public:
  explicit RandomKinds(std::mt19937& random) : random_(random) {
    schedule_.functions = {{"k", {{0, 8}, {8, 4}}}};
    schedule_.branches.clear();
    const std::uint32_t roots = 1 + draw(3);
    for (std::uint32_t i = 0; i < roots; ++i) grow(kNone, 0);
    if (schedule_.ends.size() > kMaxKinds) schedule_.ends.clear();
  }
  bool good() const { return !schedule_.ends.empty(); }
  const Schedule& schedule() const { return schedule_; }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  // A branch that follows `after`. Branches come before what follows on them, so the numbers of ops ascend on each
  // path. Its first op has a shape of its own: others may follow the same op, or begin a step.
  void grow(std::uint32_t after, int depth) {
    const auto first = static_cast<std::uint32_t>(schedule_.ops.size());
    schedule_.branches.push_back({first, after});
    const std::uint32_t count = 1 + draw(7);
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool direct = i != 0 && draw(6) == 0;
      ScheduleOp& op = add_op(schedule_, CallKind::launch, direct ? Submit::direct : Submit::graph);
      op.barrier = op.fixed_launch = true;
      if (!direct) op.function = 0;
      op.grid = op.block = {1, 1, 1};
      if (i == 0) op.grid[0] = 1 + static_cast<std::uint32_t>(schedule_.branches.size());
    }
    const auto last = static_cast<std::uint32_t>(schedule_.ops.size()) - 1;
    cut(first, last);
    const std::uint32_t children = depth < 3 ? draw(3) : 0;
    if (children != 1 && (children == 0 || draw(2) == 0)) schedule_.ends.push_back(last);
    if (children == 1) schedule_.ends.push_back(last);  // else it would be no branch of its own
    for (std::uint32_t i = 0; i < children; ++i) grow(last, depth + 1);
  }

  // Segments in the program's order.
  void cut(std::uint32_t first, std::uint32_t last) {
    ScheduleSegment segment;
    const auto close = [&] {
      if (segment.order.empty()) return;
      segment.first = segment.order.front();
      segment.last = segment.order.back();
      for (std::size_t i = 1; i < segment.order.size(); ++i)
        segment.edges.push_back({segment.order[i - 1], segment.order[i]});
      schedule_.segments.push_back(std::exchange(segment, {}));
    };
    for (std::uint32_t op = first; op <= last; ++op) {
      if (schedule_.ops[op].submit == Submit::direct || draw(4) == 0) close();
      if (schedule_.ops[op].submit == Submit::direct) continue;
      schedule_.ops[op].segment = static_cast<std::uint32_t>(schedule_.segments.size());
      segment.order.push_back(op);
    }
    close();
  }

  std::mt19937& random_;
  Schedule schedule_;
};

class Program {
 public:
  Program(const Schedule& schedule, std::mt19937& random, OrderDriver& driver)
      : schedule_(schedule),
        paths_(schedule),
        random_(random),
        driver_(driver),
        player_(schedule, driver, api_, counters) {
    player_.tune(Tune::off);
  }

  std::uint32_t kinds() const { return paths_.kinds(); }
  bool has_graphs(std::uint32_t kind) const { return !paths_.segments(kind).empty(); }
  std::uint32_t launches() const { return number_; }

  void step(std::uint32_t kind) {
    for (const std::uint32_t op : paths_.ops(kind)) issue(schedule_.ops[op].grid[0]);
  }
  // As a step, but not quite.
  void disturbed_step(std::uint32_t kind) {
    for (const std::uint32_t op : paths_.ops(kind)) {
      if (random_() % 30 == 0) continue;
      if (random_() % 30 == 0) issue(static_cast<std::uint32_t>(1 + random_() % 5));
      if (random_() % 60 == 0) return;
      if (random_() % 40 == 0) player_.flush();  // as the watchdog does
      issue(schedule_.ops[op].grid[0]);
    }
  }
  void finish() { player_.finish(); }
  const std::string& stood_aside() const { return player_.stood_aside(); }

  Counters counters;

 private:
  void issue(std::uint32_t grid) {
    Call call;
    call.kind = CallKind::launch;
    call.traced = true;
    call.host = HostEffect::async;
    call.has_stream = true;
    call.stream = {kStream, 0x1000};
    call.launch.function = reinterpret_cast<CUfunction>(0x10);
    call.launch.grid = {grid, 1, 1};
    call.launch.block = {1, 1, 1};
    std::uint64_t pointer = 0;
    std::uint32_t number = number_++;
    void* params[] = {&pointer, &number};
    call.launch.kernel_params = params;
    const auto answer = player_.before(call);
    ASSERT_TRUE(!answer || *answer == CUDA_SUCCESS);
    if (answer) return;
    driver_.launch(kStream, number);
    player_.after(call, CUDA_SUCCESS);
  }

  static inline const CUstream kStream = reinterpret_cast<CUstream>(0x1000);
  const Schedule& schedule_;
  const StepPaths paths_;
  std::mt19937& random_;
  OrderDriver& driver_;
  DriverApi api_ = driver_.api();
  StepPlayer player_;
  std::uint32_t number_ = 0;
};

void expect_in_order(std::uint32_t seed, const Program& program, const OrderDriver& driver) {
  for (std::uint32_t launch = 0; launch < program.launches(); ++launch) {
    ASSERT_EQ(driver.runs(launch), 1u) << "seed " << seed << ": launch " << launch;
    for (std::uint32_t before = 0; before < launch; ++before)
      ASSERT_TRUE(driver.before(launch)[before]) << "seed " << seed << ": " << before << " before " << launch;
  }
}

TEST(StepKinds, EveryStepIsReplayedOnceItsKindHasComeTwice) {
  std::uint32_t several = 0, going_on = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const RandomKinds kinds(random);
    if (!kinds.good()) continue;
    OrderDriver driver;
    Program program(kinds.schedule(), random, driver);
    std::vector<std::uint32_t> issued(program.kinds(), 0);
    while (program.launches() < 400) {
      const auto kind = static_cast<std::uint32_t>(random() % program.kinds());
      program.step(kind);
      ++issued[kind];
    }
    // The last step may be one that others go on from.
    program.step(0);
    ++issued[0];
    program.finish();
    ASSERT_EQ(program.stood_aside(), "");
    expect_in_order(seed, program, driver);
    if (testing::Test::HasFatalFailure()) return;
    several += program.kinds() > 1;
    std::uint64_t replayed = 0, passed = 0;
    for (std::uint32_t kind = 0; kind < program.kinds(); ++kind) {
      replayed += program.counters.kinds[kind].steps_replayed;
      passed += program.counters.kinds[kind].steps_passed_through;
      EXPECT_LE(program.counters.kinds[kind].steps_passed_through, 2u) << "seed " << seed << ", kind " << kind;
      const std::uint64_t seen =
          program.counters.kinds[kind].steps_replayed + program.counters.kinds[kind].steps_passed_through;
      // The end of the last step may not have shown.
      EXPECT_TRUE(seen == issued[kind] || seen + 1 == issued[kind]) << "seed " << seed << ", kind " << kind;
      going_on += seen != issued[kind];
    }
    EXPECT_EQ(program.counters.steps_replayed, replayed);
    EXPECT_EQ(program.counters.steps_passed_through, passed);
    EXPECT_TRUE(program.counters.divergences == 0) << "seed " << seed;
  }
  EXPECT_GT(several, 40u);
  EXPECT_GT(going_on, 2u);
}

TEST(StepKinds, WhateverComesIsKeptInOrder) {
  std::uint64_t replayed = 0, divergences = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const RandomKinds kinds(random);
    if (!kinds.good()) continue;
    OrderDriver driver;
    Program program(kinds.schedule(), random, driver);
    while (program.launches() < 500) {
      const auto kind = static_cast<std::uint32_t>(random() % program.kinds());
      random() % 3 == 0 ? program.disturbed_step(kind) : program.step(kind);
    }
    program.finish();
    ASSERT_EQ(program.stood_aside(), "");
    expect_in_order(seed, program, driver);
    if (testing::Test::HasFatalFailure()) return;
    replayed += program.counters.steps_replayed;
    divergences += program.counters.divergences;
  }
  EXPECT_GT(replayed, 600u);
  EXPECT_GT(divergences, 40u);
}

// Steps of frameworks begin alike and diverge late: the shared part is one graph, whichever of them it turns out to be.
TEST(StepKinds, WhatStepsShareIsSubmittedBeforeTheyPart) {
  Schedule schedule;
  schedule.functions = {{"k", {{0, 8}, {8, 4}}}};
  for (std::uint32_t op = 0; op < 6; ++op) {
    ScheduleOp& added = add_op(schedule, CallKind::launch, Submit::graph, op / 2);
    added.function = 0;
    added.barrier = added.fixed_launch = true;
    added.grid = added.block = {1 + op, 1, 1};
    added.block = {1, 1, 1};
    if (op % 2 == 1) schedule.segments.push_back({op - 1, op, 1, 0, {{op - 1, op}}, {op - 1, op}});
  }
  schedule.branches = {{0, kNone}, {2, 1}, {4, 1}};
  schedule.ends = {3, 5};
  std::mt19937 random(1);
  OrderDriver driver;
  Program program(schedule, random, driver);
  for (const std::uint32_t kind : {0, 0, 1, 1, 0, 1, 1, 0}) program.step(kind);
  EXPECT_EQ(program.counters.kinds[0].steps_replayed, 3u);
  EXPECT_EQ(program.counters.kinds[1].steps_replayed, 3u);
  EXPECT_EQ(driver.graphs, 2 * 6 + 1u) << "in the first step of the second kind the first part is replayed already";
}

}  // namespace
}  // namespace nimble
