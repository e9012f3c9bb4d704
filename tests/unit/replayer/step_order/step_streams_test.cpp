// Steps on several streams: all that the program orders stays in order, and every op runs once, whatever comes between.
#include "replayer/step_order/step_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/order_driver.h"
#include "tests/unit/replayer/schedule_support.h"

namespace nimble {
namespace {

constexpr std::uint32_t kStreams = 3, kEvents = 4;

// A schedule whose graphs keep all that the program's streams and events order. The step: launches on several streams,
// and events between them, of this step or the one before.
class RandomStep {
 public:
  explicit RandomStep(std::mt19937& random) : random_(random) {
    schedule_.functions = {{"k", {{0, 8}, {8, 4}}}};
    schedule_.streams.assign(kStreams, {StreamKind::non_blocking, false});
    const std::uint32_t count = 8 + draw(16);
    event_.assign(count + kStreams, 0);
    for (std::uint32_t op = 0; op < count + kStreams; ++op) {
      // Each stream has something.
      if (op < kStreams) {
        add(CallKind::launch, Submit::graph, op);
        continue;
      }
      const std::uint32_t stream = draw(kStreams);
      switch (draw(6)) {
        case 0:
          add(CallKind::launch, Submit::direct, stream);
          break;
        case 1:
          event_[op] = draw(kEvents);
          last_record_[event_[op]] = op;
          add(CallKind::event_record, Submit::graph, stream);
          break;
        case 2:
          event_[op] = draw(kEvents);
          add(CallKind::event_wait, Submit::order, stream);
          schedule_.ops.back().record = last_record_[event_[op]];
          break;
        default:
          add(CallKind::launch, Submit::graph, stream);
      }
    }
    // A wait for an event that the step records only later is for that of the step before; for one that it never
    // records, a direct op.
    for (ScheduleOp& op : schedule_.ops) {
      const auto index = static_cast<std::uint32_t>(&op - schedule_.ops.data());
      if (op.submit == Submit::order && last_record_[event_[index]] == kNone) op.submit = Submit::direct;
    }
    cut();
  }

  const Schedule& schedule() const { return schedule_; }
  std::uint32_t event(std::uint32_t op) const { return event_[op]; }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void add(CallKind kind, Submit submit, std::uint32_t stream) {
    ScheduleOp& op = add_op(schedule_, kind, submit);
    op.stream = stream;
    op.barrier = true;  // its parameters may be anything
    if (kind == CallKind::launch && submit == Submit::graph) {
      op.function = 0;
      op.grid = op.block = {1, 1, 1};
    }
  }

  // Whether the program puts op a before op b, within a step.
  bool ordered(std::uint32_t a, std::uint32_t b) const { return before_[b][a]; }

  void cut() {
    const auto count = static_cast<std::uint32_t>(schedule_.ops.size());
    std::array<std::vector<bool>, kStreams> tail;
    tail.fill(std::vector<bool>(count));
    before_.assign(count, std::vector<bool>(count));
    const auto merge = [](std::vector<bool>& into, const std::vector<bool>& other) {
      for (std::size_t i = 0; i < into.size(); ++i) into[i] = into[i] || other[i];
    };
    for (std::uint32_t i = 0; i < count; ++i) {
      const ScheduleOp& op = schedule_.ops[i];
      if (op.submit == Submit::order && op.record != kNone) {
        merge(tail[op.stream], before_[op.record]);
        tail[op.stream][op.record] = true;
      }
      before_[i] = tail[op.stream];
      tail[op.stream][i] = true;
    }
    std::vector<std::uint32_t> run;
    const auto close = [&] {
      std::vector<std::uint32_t> nodes;
      for (const std::uint32_t op : run)
        if (schedule_.ops[op].submit == Submit::graph) nodes.push_back(op);
      if (nodes.empty()) {
        for (const std::uint32_t op : run) schedule_.ops[op].submit = Submit::direct;
      } else {
        ScheduleSegment segment;
        segment.first = run.front();
        segment.last = run.back();
        for (const std::uint32_t op : run)
          schedule_.ops[op].segment = static_cast<std::uint32_t>(schedule_.segments.size());
        for (const std::uint32_t a : nodes)
          for (const std::uint32_t b : nodes)
            if (ordered(a, b)) segment.edges.push_back({a, b});
        segment.order = nodes;
        schedule_.segments.push_back(segment);
      }
      run.clear();
    };
    for (std::uint32_t i = 0; i < count; ++i) {
      if (schedule_.ops[i].submit == Submit::direct || draw(7) == 0) close();
      if (schedule_.ops[i].submit != Submit::direct) run.push_back(i);
    }
    close();
  }

  std::mt19937& random_;
  Schedule schedule_;
  std::vector<std::uint32_t> event_;  // by op
  std::array<std::uint32_t, kEvents> last_record_{kNone, kNone, kNone, kNone};
  std::vector<std::vector<bool>> before_;
};

// The program: issues the step again and again, each stream's ops in order, across streams as it comes, and now and
// then something else. Makes each call twice: to a driver by itself, and through the player. A launch that the player
// passes may reach the driver later, after calls for other streams, as if another thread made it.
class Program {
 public:
  Program(std::uint32_t seed, OrderDriver& alone) : random_(seed), step_(random_), alone_(alone) {
    for (std::uint32_t s = 0; s < kStreams; ++s) streams_.push_back(fresh());
  }

  const Schedule& schedule() const { return step_.schedule(); }
  std::uint32_t launches() const { return number_; }

  void run(StepPlayer& player, OrderDriver& driver, int steps, bool disturbed) {
    player_ = &player;
    driver_ = &driver;
    for (int i = 0; i < steps; ++i) {
      driver.idle = !disturbed || draw(3) != 0;
      one_step(disturbed);
    }
    land_all();
  }

 private:
  struct Launch {
    Call call;
    std::uint32_t number = 0;
  };

  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  CUstream fresh() { return reinterpret_cast<CUstream>(0x1000 * ++handles_); }
  static CUevent event(std::uint32_t number) { return reinterpret_cast<CUevent>(std::uintptr_t{0x10} + number); }

  void one_step(bool disturbed) {
    const std::vector<ScheduleOp>& ops = step_.schedule().ops;
    if (disturbed && draw(5) == 0) between();
    // Ops still to come, in an order in which the host may make the calls: a wait after its record, and no event
    // recorded again while a wait for the earlier record is outstanding.
    std::vector<std::uint32_t> left(ops.size());
    for (std::uint32_t i = 0; i < left.size(); ++i) left[i] = i;
    std::vector<bool> came(ops.size());
    while (!left.empty()) {
      std::size_t at = disturbed || draw(2) == 0 ? draw(static_cast<std::uint32_t>(left.size())) : 0;
      while (!may_come(left[at], left)) at = (at + 1) % left.size();
      const std::uint32_t op = left[at];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
      came[op] = true;
      if (disturbed && draw(200) == 0) continue;  // left out
      if (disturbed && draw(120) == 0) in_between();
      const bool other_event = disturbed && draw(ops[op].kind == CallKind::event_wait ? 12 : 300) == 0;
      issue(ops[op].kind, streams_[ops[op].stream], other_event ? draw(kEvents) : step_.event(op));
      if (disturbed && draw(400) == 0) return;  // the step ends early
    }
  }

  bool may_come(std::uint32_t op, const std::vector<std::uint32_t>& left) const {
    const std::vector<ScheduleOp>& ops = step_.schedule().ops;
    return std::none_of(left.begin(), left.end(), [&](std::uint32_t other) {
      if (other >= op) return false;
      const bool events = ops[op].kind != CallKind::launch && ops[other].kind != CallKind::launch;
      return ops[other].stream == ops[op].stream || (events && step_.event(op) == step_.event(other));
    });
  }

  void between() {
    land_all();
    const std::uint32_t stream = draw(kStreams);
    switch (draw(8)) {
      case 0: {  // another stream from now on
        Call end;
        end.ends = Ends::stream;
        end.has_stream = true;
        end.stream = ref(streams_[stream]);
        through(end);
        if (stream != 0) streams_[stream] = fresh();
        break;
      }
      case 1:
        issue(CallKind::event_record, streams_[stream], draw(kEvents));
        break;
      case 2:
        issue(CallKind::event_wait, streams_[stream], draw(kEvents));
        break;
      case 3: {  // a stream that the step knows nothing of
        CUstream other = fresh();
        issue(CallKind::event_wait, other, draw(kEvents));
        issue(CallKind::launch, other, 0);
        issue(CallKind::event_record, other, draw(kEvents));
        break;
      }
      case 4:
        launch_own_graph(draw(2) == 0 ? streams_[stream] : fresh());
        break;
      default:
        issue(CallKind::launch, streams_[stream], 0);
    }
  }

  // A graph of the program, with a launch and then a record of an event, which no call shows.
  void launch_own_graph(CUstream stream) {
    Call c = call(CallKind::graph_launch, stream);
    const std::uint32_t number = number_++;
    const CUevent recorded = event(draw(kEvents));
    for (OrderDriver* driver : {&alone_, driver_}) {
      if (driver == driver_) {
        land_all();
        EXPECT_FALSE(through(c));
      }
      driver->launch(stream, number);
      driver->record(recorded, stream);
    }
    if (player_->stood_aside().empty()) player_->after(c, CUDA_SUCCESS);
  }

  void in_between() {
    const std::uint32_t stream = draw(kStreams);
    switch (draw(6)) {
      case 0: {
        Call wait = call(CallKind::stream_synchronize, streams_[stream]);
        wait.host = HostEffect::observe;
        through(wait);
        break;
      }
      case 1: {
        Call wait = call(CallKind::event_synchronize, streams_[stream]);
        wait.has_stream = false;
        wait.host = HostEffect::observe;
        wait.event = event(draw(kEvents));
        through(wait);
        break;
      }
      case 2:
        issue(CallKind::launch, streams_[stream], 0);
        break;
      case 3:  // of a stream that the step knows nothing of
        issue(CallKind::event_record, fresh(), draw(kEvents));
        break;
      case 4:
        launch_own_graph(fresh());
        break;
      default:
        if (!player_->stood_aside().empty()) return;
        player_->flush();  // as the watchdog does
        if (!player_->stood_aside().empty()) player_->leave();
    }
  }

  static StreamRef ref(CUstream stream) { return {stream, reinterpret_cast<std::uint64_t>(stream)}; }
  static Call call(CallKind kind, CUstream stream) {
    Call c;
    c.kind = kind;
    c.traced = true;
    c.host = HostEffect::async;
    c.has_stream = true;
    c.stream = ref(stream);
    return c;
  }

  void issue(CallKind kind, CUstream stream, std::uint32_t on) {
    Call c = call(kind, stream);
    std::uint64_t pointer = 0;
    std::uint32_t number = 0;
    void* params[] = {&pointer, &number};
    if (kind == CallKind::launch) {
      number = number_++;
      ASSERT_LT(number_, OrderDriver::kMost);
      c.launch.function = reinterpret_cast<CUfunction>(0x10);
      c.launch.grid = c.launch.block = {1, 1, 1};
      c.launch.kernel_params = params;
      alone_.launch(stream, number);
    } else {
      c.event = event(on);
      kind == CallKind::event_record ? alone_.record(c.event, stream) : alone_.wait(stream, c.event);
    }
    land(stream);
    if (through(c)) return;
    if (kind == CallKind::launch) {
      passed_.push_back({c, number});
      if (draw(2) == 0) land(stream);
      return;
    }
    if (kind == CallKind::event_record) driver_->record(c.event, stream);
    if (kind == CallKind::event_wait) driver_->wait(stream, c.event);
    if (player_->stood_aside().empty()) player_->after(c, CUDA_SUCCESS);
  }

  void land(const Launch& launch) {
    driver_->launch(launch.call.stream.handle, launch.number);
    if (player_->stood_aside().empty()) player_->after(launch.call, CUDA_SUCCESS);
  }
  void land(CUstream stream) {
    std::erase_if(passed_, [&](const Launch& launch) {
      if (launch.call.stream.handle != stream) return false;
      land(launch);
      return true;
    });
  }
  void land_all() {
    for (const Launch& launch : passed_) land(launch);
    passed_.clear();
  }

  // Whether the player has answered it.
  bool through(Call& c) {
    const auto answer = player_->stood_aside().empty() ? player_->before(c) : player_->before_aside(c);
    EXPECT_TRUE(!answer || *answer == CUDA_SUCCESS);
    return answer.has_value();
  }

  std::mt19937 random_;
  RandomStep step_;
  OrderDriver& alone_;
  StepPlayer* player_ = nullptr;
  OrderDriver* driver_ = nullptr;
  std::vector<CUstream> streams_;
  std::vector<Launch> passed_;  // not in the driver yet
  std::uint32_t number_ = 0;
  std::uintptr_t handles_ = 0;
};

// Every launch ran once, after everything that the program has put before it.
void expect_in_order(std::uint32_t seed, const Program& program, const OrderDriver& alone, const OrderDriver& driver) {
  for (std::uint32_t launch = 0; launch < program.launches(); ++launch) {
    ASSERT_EQ(driver.runs(launch), 1u) << "seed " << seed << ": launch " << launch;
    const OrderDriver::Before missing = alone.before(launch) & ~driver.before(launch);
    ASSERT_TRUE(missing.none()) << "seed " << seed << ": " << missing._Find_first() << " before " << launch << " of "
                                << program.launches();
  }
}

TEST(StepStreams, WhatTheProgramOrdersStaysInOrder) {
  std::uint64_t replayed = 0, disturbed_replays = 0, divergences = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    OrderDriver alone, driver;  // api() serves the second
    Program program(seed, alone);
    DriverApi api = driver.api();
    Counters counters;
    StepPlayer player(program.schedule(), driver, api, counters);
    program.run(player, driver, 6, false);
    replayed += counters.steps_replayed;
    const std::uint64_t regular = counters.steps_replayed;
    program.run(player, driver, 30, true);
    disturbed_replays += counters.steps_replayed - regular;
    divergences += counters.reasons.size();
    player.finish();
    ASSERT_EQ(player.stood_aside(), "");
    expect_in_order(seed, program, alone, driver);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(replayed, 1000u);
  EXPECT_GT(disturbed_replays, 2000u);
  EXPECT_GT(divergences, 200u);
}

// The driver refuses one of the calls by which replay keeps streams in order, or launches graphs, and half of the times
// the wait that stands in for it as well.
TEST(StepStreams, SoItDoesWhereTheDriverRefusesACallOfReplays) {
  std::uint32_t refused = 0, aside = 0, waited_twice = 0;
  for (std::uint32_t seed = 1; seed <= 1500; ++seed) {
    OrderDriver alone, driver;
    Program program(seed, alone);
    DriverApi api = driver.api();
    Counters counters;
    StepPlayer player(program.schedule(), driver, api, counters);
    program.run(player, driver, 3, false);
    driver.refuse_at = 1 + seed % 120;
    driver.refuse_waits = seed % 2;
    program.run(player, driver, 8, true);
    player.finish();
    refused += driver.refused;
    aside += !player.stood_aside().empty();
    waited_twice += seed % 2 == 1 && driver.refuse_waits == 0;
    EXPECT_FALSE(player.errors().any());
    expect_in_order(seed, program, alone, driver);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(aside, 700u);
  EXPECT_GT(waited_twice, 200u);
}

// What the program has put on the streams outside of its steps may be waiting for what a graph holds.
class SettledTest : public testing::Test {
 protected:
  explicit SettledTest(bool forked = false) : schedule_(of_two_streams(forked)) {}
  static Schedule of_two_streams(bool forked) {
    Schedule schedule;
    schedule.streams = {{StreamKind::non_blocking, true}, {StreamKind::non_blocking, forked}};
    return schedule;
  }
  static StreamRef stream(std::uintptr_t number) { return {reinterpret_cast<CUstream>(number), number}; }
  void SetUp() override {
    streams_.set(0, stream(0x1000));
    streams_.set(1, stream(0x2000));
    ASSERT_TRUE(streams_.settled());
  }

  const Schedule schedule_;
  OrderDriver driver_;
  DriverApi api_ = driver_.api();
  StepStreams streams_{schedule_, driver_, api_};
};

TEST_F(SettledTest, WhatMayWaitOutsideIsWaitedFor) {
  for (const std::uint32_t s : {0u, 1u}) {
    driver_.idle = false;
    streams_.outside(s, false);
    EXPECT_TRUE(streams_.settled()) << "a copy waits for nothing";
    streams_.individually(s);
    EXPECT_TRUE(streams_.settled()) << "so does what the step does";
    streams_.outside(s, true);
    EXPECT_FALSE(streams_.settled());
    EXPECT_FALSE(streams_.settled());
    driver_.idle = true;
    EXPECT_TRUE(streams_.settled());
  }
}

class ForkedTest : public SettledTest {
 protected:
  ForkedTest() : SettledTest(true) {}
};

TEST_F(ForkedTest, ForkedStreamsFollowTheLaunchStreamAnyway) {
  driver_.idle = false;
  streams_.outside(0, true);
  EXPECT_TRUE(streams_.settled());
  streams_.outside(1, true);
  EXPECT_FALSE(streams_.settled());
}

TEST_F(SettledTest, AStreamThatIsNewMayHaveAnything) {
  driver_.idle = false;
  streams_.set(1, stream(0x3000));
  EXPECT_FALSE(streams_.settled());
}

// The launch stream is ordered after the work of a stream that ends; while it captures, it cannot be.
TEST(StepStreams, AStreamThatEndsWhileTheLaunchStreamCapturesIsWaitedForLater) {
  for (bool captures : {false, true}) {
    FakeDriver driver;
    const DriverApi api = driver.api();
    Schedule schedule;
    schedule.streams.assign(3, {StreamKind::non_blocking, false});
    StepStreams streams(schedule, driver, api);
    streams.use_context(reinterpret_cast<CUcontext>(0x8));
    const auto stream = [](std::uintptr_t handle) { return StreamRef{reinterpret_cast<CUstream>(handle), handle}; };
    streams.set(0, stream(0x1000));
    streams.set(1, stream(0x2000));
    streams.set(2, stream(0x3000));
    streams.individually(1);
    streams.individually(2);
    if (captures) driver.capturing = {streams.launch().handle, streams[2].handle};
    driver.log.clear();
    streams.ends(1);
    EXPECT_EQ(driver.log, captures ? std::vector<std::string>{"record"} : (std::vector<std::string>{"record", "wait"}));
    driver.capturing.clear();
    driver.log.clear();
    EXPECT_EQ(streams.begin_step(), CUDA_SUCCESS);
    EXPECT_EQ(std::count(driver.log.begin(), driver.log.end(), "wait"), captures ? 2 : 1);
  }
}

}  // namespace
}  // namespace nimble
