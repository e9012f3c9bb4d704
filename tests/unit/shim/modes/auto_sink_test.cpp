#include "shim/modes/auto_sink.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

namespace nimble::shim {
namespace {

class FakeContext final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction) override { return kernel_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    if (std::string_view(name) != "cuStreamIsCapturing") return nullptr;
    return reinterpret_cast<void*>(
        +[](CUstream, CUstreamCaptureStatus* status) { return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS; });
  }

 private:
  FunctionInfo kernel_;
};

// What the sink makes of a schedule in these tests: it counts what comes.
class FakeReplay final : public ReplaySink {
 public:
  Answer before(Call&) noexcept override { return ++befores, ++all, std::nullopt; }
  void after(const Call&, CUresult) noexcept override { ++afters; }
  void finish() noexcept override { ++finishes; }
  SinkReport report() override {
    SinkReport report;
    report.phase = SinkPhase::replaying;
    report.reason = loads ? "" : "it cannot";
    return report;
  }
  bool load() override { return loads; }
  void take_over(std::span<const Call> calls) override { earlier.assign(calls.begin(), calls.end()); }
  std::uint64_t steps_matched() const override { return matched; }
  std::optional<std::vector<Allocation>> retire() override {
    ++retirements;
    if (!retires) return std::nullopt;
    return std::vector<Allocation>{{0x10000, 8192, MemoryKind::device}};
  }

  static inline std::atomic<int> all{0};  // calls of all
  bool loads = true, retires = true;
  std::atomic<int> befores{0}, afters{0}, finishes{0}, retirements{0};
  std::uint64_t matched = 0;
  std::vector<Call> earlier;
};

class AutoSinkTest : public testing::Test {
 protected:
  AutoSinkTest() {
    FakeReplay::all = 0;
    AutoOptions options;
    options.limit_bytes = limit_;
    options.most_recordings = 2;
    options.log = [this](ReplayLog level, const std::string& text) {
      const std::lock_guard lock(mutex_);
      (level == ReplayLog::warning ? warnings_ : infos_) += text + "\n";
    };
    options.enter_helper_thread = [] {};
    options.replay = [this](const std::string& schedule, const CounterValues& counted, Onlookers&) {
      auto made = std::make_unique<FakeReplay>();
      made->loads = loads_;
      schedule_ = schedule;
      counted_ = counted;
      replay_ = made.get();
      return made;
    };
    options_ = options;
  }
  // Kept for good, as in a process: its thread is never waited for.
  AutoSink& sink() {
    static auto* const kept = new std::vector<AutoSink*>;
    if (!sink_) kept->push_back(sink_ = new AutoSink(options_, context_));
    return *sink_;
  }

  static Call op(CallKind kind) {
    Call call;
    call.symbol = "cuSomething";
    call.kind = kind;
    call.traced = call.has_stream = true;
    call.host = HostEffect::async;
    call.stream = {nullptr, 0x1001};
    return call;
  }
  void pass(Call call, CUresult result = CUDA_SUCCESS) {
    const std::uint64_t address = call.memory.address;
    EXPECT_FALSE(sink().before(call));
    call.memory.address = address;
    sink().after(call, result);
  }
  void allocate(std::uint64_t address) {
    Call call = op(CallKind::alloc);
    call.has_stream = false;
    call.memory.address = address;
    call.memory.size = 4096;
    pass(call);
  }
  void set(std::uint64_t bytes) {
    Call call = op(CallKind::set);
    call.transfer.dst.address = 0x10000;
    call.transfer.width = bytes;
    pass(call);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i)
      for (const std::uint64_t bytes : {8, 16, 24}) set(bytes);
  }
  // Waits for a reason of not replaying yet.
  bool comes_to_have_said(const std::string& part) {
    for (int i = 0; i < 30000 && sink().report().reason.find(part) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return sink().report().reason.find(part) != std::string::npos;
  }
  // Ops of which no sequence repeats.
  void noise(int count) {
    for (int i = 0; i < count; ++i) set(64 + next_++ * 8 % 3000);
  }
  bool comes_to(SinkPhase phase) {
    for (int i = 0; i < 30000 && sink().report().phase != phase; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return sink().report().phase == phase;
  }
  // Ready, but there was no call yet.
  bool becomes_ready() {
    for (int i = 0; i < 30000 && !said("analyzed in"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return said("analyzed in");
  }
  // The background thread changes the phase first.
  bool comes_to_say(const char* text) {
    for (int i = 0; i < 30000 && !said(text); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return said(text);
  }
  bool said(const char* text) {
    const std::lock_guard lock(mutex_);
    return (infos_ + warnings_).find(text) != std::string::npos;
  }

  std::uint64_t limit_ = 64 << 20;
  FakeContext context_;
  AutoOptions options_;
  AutoSink* sink_ = nullptr;
  std::mutex mutex_;
  std::string infos_, warnings_, schedule_;
  CounterValues counted_;
  bool loads_ = true;
  std::atomic<FakeReplay*> replay_{nullptr};
  std::uint64_t next_ = 0;
};

TEST_F(AutoSinkTest, RecordsAnalyzesAndHandsOver) {
  allocate(0x10000);
  allocate(0x20000);
  EXPECT_EQ(sink().report().phase, SinkPhase::recording);
  sink().mark(true, nullptr, 0);
  sink().mark(false, nullptr, 0);
  steps(100);
  Call free = op(CallKind::free);
  free.has_stream = false;
  free.memory.address = 0x20000;
  pass(free);
  ASSERT_TRUE(becomes_ready());
  EXPECT_EQ(replay_.load()->befores, 0);
  EXPECT_NE(schedule_.find("\"nimble_schedule\""), std::string::npos);
  EXPECT_EQ(counted_.steps_marked, 1u);
  EXPECT_EQ(counted_.recordings, 1u);
  allocate(0x30000);  // by now replay has to look after it
  EXPECT_EQ(replay_.load()->befores, 1);
  EXPECT_EQ(replay_.load()->afters, 1);
  ASSERT_EQ(replay_.load()->earlier.size(), 1u);
  EXPECT_EQ(replay_.load()->earlier[0].memory.address, 0x10000u);
  steps(2);
  EXPECT_EQ(replay_.load()->befores, 7);
  EXPECT_EQ(sink().report().phase, SinkPhase::replaying);
  sink().finish();
  EXPECT_EQ(replay_.load()->finishes, 1);
}

TEST_F(AutoSinkTest, CallsInFlightAreReported) {
  allocate(0x10000);
  steps(100);
  Call slow = op(CallKind::alloc);
  slow.has_stream = false;
  EXPECT_FALSE(sink().before(slow));
  ASSERT_TRUE(becomes_ready());
  std::thread([&] { steps(1); }).join();
  EXPECT_EQ(replay_.load()->befores, 3);
  slow.memory.address = 0x50000;
  slow.memory.size = 64;
  sink().after(slow, CUDA_SUCCESS);
  EXPECT_EQ(replay_.load()->afters, 4);
}

TEST_F(AutoSinkTest, WaitsForTheEndOfACapture) {
  allocate(0x10000);
  steps(100);
  pass(op(CallKind::capture_begin));
  ASSERT_TRUE(becomes_ready());
  steps(1);
  EXPECT_EQ(replay_.load()->befores, 0);
  EXPECT_EQ(sink().report().phase, SinkPhase::analyzing);
  pass(op(CallKind::capture_end));
  steps(1);
  EXPECT_EQ(replay_.load()->befores, 3);
}

TEST_F(AutoSinkTest, WhatCannotBeReplayedLeavesTheProgramAlone) {
  loads_ = false;
  allocate(0x10000);
  steps(100);
  ASSERT_TRUE(comes_to(SinkPhase::aside));
  EXPECT_EQ(sink().report().reason, "it cannot");
  steps(5);
  EXPECT_EQ(FakeReplay::all, 0);
}

TEST_F(AutoSinkTest, LooksAgainWhereThereIsNoStepYet) {
  allocate(0x10000);
  noise(400);
  for (int i = 0; i < 30000 && sink().report().reason.empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_NE(sink().report().reason.find("no step found yet"), std::string::npos);
  EXPECT_EQ(sink().report().phase, SinkPhase::recording);
  steps(400);
  EXPECT_TRUE(becomes_ready());
}

// What repeats during a program's set-up may be something that no graph can hold.
TEST_F(AutoSinkTest, LooksAgainWhereTheStepHasNoSchedule) {
  options_.most_recordings = 2;
  allocate(0x10000);
  for (int i = 0; i < 300; ++i) pass(op(CallKind::opaque));
  EXPECT_TRUE(comes_to_have_said("but no schedule"));
  EXPECT_EQ(sink().report().phase, SinkPhase::recording);
  steps(1500);
  EXPECT_TRUE(becomes_ready());
}

TEST_F(AutoSinkTest, GivesUpAfterSomeStepsWithoutASchedule) {
  options_.most_recordings = 2;
  allocate(0x10000);
  for (int i = 0; i < 300; ++i) pass(op(CallKind::opaque));
  EXPECT_TRUE(comes_to_have_said("but no schedule"));
  for (int i = 0; i < 1000; ++i) pass(op(CallKind::opaque));
  EXPECT_TRUE(comes_to(SinkPhase::aside));
  EXPECT_TRUE(comes_to_say("but no schedule"));
}

TEST_F(AutoSinkTest, AnAbandonedStepDoesNotCount) {
  allocate(0x10000);
  steps(100);
  noise(60);
  for (int i = 0; i < 30000 && sink().report().reason.empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_NE(sink().report().reason.find("followed by other ops"), std::string::npos) << sink().report().reason;
  EXPECT_EQ(sink().report().phase, SinkPhase::recording);
}

TEST_F(AutoSinkTest, GivesUpAtItsLimit) {
  options_.limit_bytes = 200 << 10;
  allocate(0x10000);
  noise(3000);
  ASSERT_TRUE(comes_to(SinkPhase::aside));
  EXPECT_TRUE(comes_to_say("NIMBLE_AUTO_LIMIT"));
  noise(10);
  EXPECT_EQ(replay_.load(), nullptr);
}

TEST_F(AutoSinkTest, RecordsAgainWhereTheStepDoesNotCome) {
  allocate(0x10000);
  steps(100);
  ASSERT_TRUE(becomes_ready());
  steps(1);
  FakeReplay* const first = replay_.load();
  constexpr int kEnough = static_cast<int>(AutoSink::kOpsPerCheck * AutoSink::kIdleChecks) / 3 + 1;
  first->retires = false;
  steps(kEnough);
  EXPECT_GE(first->retirements, 1);
  EXPECT_EQ(sink().report().phase, SinkPhase::replaying) << "it still has something to look after";
  first->retires = true;
  steps(kEnough);
  EXPECT_TRUE(comes_to_say("so it is recorded again"));
  steps(100);
  ASSERT_TRUE(comes_to(SinkPhase::analyzing));
  for (int i = 0; i < 30000 && replay_.load() == first; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_NE(replay_.load(), first);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  steps(1);
  FakeReplay* const second = replay_.load();
  ASSERT_EQ(second->earlier.size(), 1u);
  EXPECT_EQ(second->earlier[0].memory.size, 8192u) << "what the first replay knew is alive";
  EXPECT_EQ(counted_.recordings, 2u);
  // Not a third time.
  steps(2 * kEnough);
  EXPECT_EQ(second->retirements, 0);
}

TEST_F(AutoSinkTest, StepsThatMatchKeepTheSchedule) {
  allocate(0x10000);
  steps(100);
  ASSERT_TRUE(becomes_ready());
  for (int i = 0; i < 60; ++i) {
    steps(AutoSink::kOpsPerCheck / 3 + 1);
    if (i % 8 == 0) ++replay_.load()->matched;
  }
  EXPECT_EQ(replay_.load()->retirements, 0);
}

TEST_F(AutoSinkTest, EndsAtAnyMoment) {
  sink().finish();
  EXPECT_FALSE(said("auto")) << "the process has not used the GPU";
  sink_ = nullptr;
  allocate(0x10000);
  sink().finish();
  EXPECT_TRUE(comes_to_say("ended before replay began"));
  sink().finish();
  steps(300);
  EXPECT_EQ(sink().report().phase, SinkPhase::aside);
  EXPECT_EQ(replay_.load(), nullptr);
}

TEST_F(AutoSinkTest, AChildOfAProcessThatHasDoneNothingStartsItsOwn) {
  EXPECT_TRUE(sink().forked());
  allocate(0x10000);
  EXPECT_FALSE(sink().forked());
}

}  // namespace
}  // namespace nimble::shim
