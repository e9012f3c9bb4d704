// What the player does in an audited step, on a driver that only keeps a list. Whether audits find wrong schedules is
// tested on simcuda (tests/integration/audit_test.py).
#include "replayer/audit/audit.h"

#include <gtest/gtest.h>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

using Log = std::vector<std::string>;

// launch A; record; launch B, all in one graph.
Schedule schedule() {
  Schedule s;
  s.functions = {{"k", {{0, 8}, {8, 4}}}};
  s.objects = {{MemoryKind::device, 64}, {MemoryKind::device, 512}, {MemoryKind::pinned, 64}};
  for (const std::uint32_t object : {0u, kNone, 1u}) {
    ScheduleOp& op = s.ops.emplace_back();
    op.kind = object == kNone ? CallKind::event_record : CallKind::launch;
    op.submit = Submit::graph;
    op.segment = 0;
    if (object == kNone) continue;
    op.function = 0;
    op.grid = op.block = {1, 1, 1};
    op.pointers = {{0, {object, 0, false}}};
    op.writes = {object};
  }
  s.segments = {{0, 2, 1, 0, {{0, 1}, {1, 2}}, {0, 1, 2}}};
  return s;
}

class AuditTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kA = 0x5000, kB = 0x6000, kPinned = 0x7000;
  const Log kGraph = {"graph"}, kInOrder = {"launch 1", "record", "launch 2"},
            kTwice = {"copy 64", "copy 512", "patch event", "graph",    "patch event",
                      "copy 64", "copy 512", "copy 64",     "copy 512", "launch 1",
                      "record",  "launch 2", "copy 64",     "copy 512", "record"};

  void start(Schedule s, std::optional<std::uint32_t> every) {
    player_.emplace(std::move(s), driver_, api_, counters_);
    player_->audit(every, [this] { return elsewhere_; });
    allocated(kA, 64, MemoryKind::device);
    allocated(kB, 512, MemoryKind::device);
    allocated(kPinned, 64, MemoryKind::pinned);
    step();
  }
  void allocated(std::uint64_t base, std::uint64_t size, MemoryKind memory) {
    Call c;
    c.kind = CallKind::alloc;
    c.traced = true;
    c.memory.address = base;
    c.memory.size = size;
    c.memory.kind = memory;
    player_->after(c, CUDA_SUCCESS);
  }
  void make(Call& c, CUstream stream = FakeDriver::kStream) {
    c.traced = true;
    c.host = HostEffect::async;
    c.has_stream = true;
    c.stream = {stream, reinterpret_cast<std::uint64_t>(stream)};
    if (player_->before(c)) return;
    driver_.log.push_back("passed");
    player_->after(c, CUDA_SUCCESS);
  }
  void launch(std::uint64_t pointer, std::uint32_t number, CUstream stream = FakeDriver::kStream) {
    Call c;
    c.kind = CallKind::launch;
    void* params[] = {&pointer, &number};
    c.launch.function = FakeDriver::kKernel;
    c.launch.grid = c.launch.block = {1, 1, 1};
    c.launch.kernel_params = params;
    make(c, stream);
  }
  // What a step comes to at the driver.
  Log step() {
    driver_.log.clear();
    launch(kA, 1);
    Call record;
    record.kind = CallKind::event_record;
    record.event = reinterpret_cast<CUevent>(0x50);
    make(record);
    launch(second_, 2);
    Log log;
    for (const std::string& entry : driver_.log)
      if (entry != "node" && entry != "instantiate" && entry != "alloc") log.push_back(entry);
    return log;
  }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  Counters counters_;
  std::uint64_t elsewhere_ = 0, second_ = kB;  // what the second launch is given
  std::optional<StepPlayer> player_;
};

TEST_F(AuditTest, EveryNthStepRunsTwiceAndTheProgramsOrderStays) {
  start(schedule(), 3);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(step(), kGraph);
    EXPECT_EQ(step(), kGraph);
    EXPECT_EQ(step(), kTwice);
  }
  EXPECT_EQ(counters_.steps_audited, 2u);
  player_->finish();
  EXPECT_EQ(counters_.steps_audited, 3u);
  EXPECT_EQ(counters_.audits_failed, 0u);
  EXPECT_EQ(counters_.audits_skipped.size(), 0u);
  EXPECT_EQ(player_->stood_aside(), "");
}

TEST_F(AuditTest, OfBeliefsComeLessAndLessOften) {
  start(schedule(), std::nullopt);
  std::vector<int> audited;
  for (int i = 1; i <= 2000; ++i)
    if (step() == kTwice) audited.push_back(i);
  EXPECT_EQ(audited, (std::vector<int>{1, 2, 10, 100, 1000}));
}

TEST_F(AuditTest, UntilItIsJudgedStepsRunInTheProgramsOrder) {
  start(schedule(), 1);
  driver_.busy = true;
  EXPECT_EQ(step(), kTwice);
  EXPECT_EQ(step(), kInOrder);
  EXPECT_EQ(step(), kInOrder);
  driver_.busy = false;
  EXPECT_EQ(step(), kTwice);
  EXPECT_EQ(counters_.steps_audited, 1u);
  EXPECT_EQ(counters_.steps_replayed, 0u);
}

TEST_F(AuditTest, WhereAStreamCannotWaitForAnAuditNothingHeldIsLost) {
  start(schedule(), 1);
  driver_.busy = true;
  EXPECT_EQ(step(), kTwice);
  driver_.log.clear();
  launch(kA, 1);
  driver_.refuse["wait"] = CUDA_ERROR_OUT_OF_MEMORY;
  launch(kB, 7, FakeDriver::kOther);
  EXPECT_EQ(driver_.log, (Log{"launch 1", "passed"}));
  EXPECT_EQ(player_->stood_aside(), "a stream cannot wait for an audit");
}

// The copies of 64 and 512 bytes are adjacent, and those of the graph's results follow the others.
TEST_F(AuditTest, ADifferenceEndsReplayAndNamesTheOps) {
  Schedule s = schedule();
  s.ops[0].believed_reads = {1};
  start(s, 1);
  driver_.odd_bytes = FakeDriver::kArena + 256 + 512 + 256;
  EXPECT_EQ(step(), kTwice);
  EXPECT_EQ(step(), Log(3, "passed"));
  const std::string& why = player_->stood_aside();
  EXPECT_NE(why.find("512 bytes of object 1 (device, 512 bytes) differ, written by op 2 (launch k)"), std::string::npos)
      << why;
  EXPECT_EQ(why.find("op 0"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_EQ(counters_.audits_failed, 1u);
}

TEST_F(AuditTest, WhatWasBelievedToBeReadOnlyIsComparedToo) {
  Schedule s = schedule();
  s.ops[2].writes = std::vector<std::uint32_t>();
  s.ops[2].believed_reads = {1};
  start(s, 1);
  driver_.odd_bytes = FakeDriver::kArena + 256 + 512 + 256;
  EXPECT_EQ(step(), kTwice);
  step();
  const std::string& why = player_->stood_aside();
  EXPECT_NE(why.find("which nothing should have written; it is used by op 2 (launch k)"), std::string::npos) << why;
}

TEST_F(AuditTest, WhatMayBeWrittenUnseenIsNotAudited) {
  Schedule barrier = schedule(), unknown = schedule(), host = schedule();
  barrier.ops[2].barrier = true;
  barrier.ops[2].pointers.clear();
  unknown.ops[0].writes.reset();
  host.ops[2].pointers = {{0, {2, 0, false}}};
  host.ops[2].writes = {2};
  for (const auto& [s, why] : {std::pair{barrier, "an unknown op may write anything"},
                               std::pair{unknown, "the schedule does not say what is written"},
                               std::pair{host, "a kernel writes memory that the host reaches"}}) {
    counters_ = {};
    second_ = s.ops[2].writes == host.ops[2].writes ? kPinned : kB;
    start(s, 1);
    EXPECT_EQ(step(), kGraph);
    EXPECT_EQ(counters_.audits_skipped, (std::map<std::string, std::uint64_t>{{why, 1}}));
  }
}

TEST_F(AuditTest, NothingIsCopiedBackWhileOthersWork) {
  start(schedule(), 2);
  EXPECT_EQ(step(), kGraph);
  launch(kA, 9, FakeDriver::kOther);
  EXPECT_EQ(step(), kGraph) << "it would be due";
  elsewhere_ = 1;  // passed without coming here
  EXPECT_EQ(step(), kGraph);
  driver_.busy = true;
  EXPECT_EQ(step(), kTwice);
  EXPECT_TRUE(player_->state().auditing);
  driver_.log.clear();
  launch(kA, 9, FakeDriver::kOther);
  EXPECT_EQ(driver_.log, (Log{"wait", "passed"})) << "after the audit";
  driver_.busy = false;
  step();
  EXPECT_FALSE(player_->state().auditing);
  EXPECT_EQ(counters_.audits_skipped["other streams have work"], 2u);
}

TEST_F(AuditTest, MemoryThatTheProgramMayNeedIsNotTaken) {
  driver_.free_memory = 4 * 2 * (64 + 192 + 512) - 1;
  start(schedule(), 1);
  EXPECT_EQ(step(), kGraph);
  EXPECT_EQ(counters_.audits_skipped["no spare memory for its copies"], 1u);
  driver_.free_memory += 1;
  EXPECT_EQ(step(), kTwice);
}

// Whatever the driver refuses: the ops are submitted once more or have their effect, and the events are recorded.
TEST_F(AuditTest, WhatTheDriverRefusesLosesNothing) {
  start(schedule(), 1);
  driver_.refuse["graph"] = CUDA_ERROR_OUT_OF_MEMORY;
  const Log log = step();
  EXPECT_EQ(Log(log.end() - 3, log.end()), kInOrder);
  EXPECT_NE(player_->stood_aside(), "");
  driver_.refuse.clear();

  start(schedule(), 1);
  driver_.refuse["copy"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(step(), kGraph) << "with nothing saved nothing is audited";
  EXPECT_EQ(player_->stood_aside(), "");
}

}  // namespace
}  // namespace nimble
