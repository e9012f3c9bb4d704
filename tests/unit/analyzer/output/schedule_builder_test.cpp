#include "analyzer/output/schedule_builder.h"

#include <gtest/gtest.h>

#include "analyzer/output/schedule_writer.h"
#include "replayer/schedule/schedule_reader.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;
using test::Random;

test::TraceText begin() {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
  text.stream();
  text.alloc(0x10000, 0x1000);
  text.alloc(0x20000, 0x1000, "pinned");
  return text;
}

Schedule schedule_of(const test::TraceText& text, const AnalysisOptions& options = test::believing()) {
  Analysis analysis = text.analyze(options);
  EXPECT_EQ(analysis.plan.status, kExitOk) << analysis.plan.why_no_schedule;
  return build_schedule(analysis);
}

TEST(ScheduleBuilder, NamesObjectsInsteadOfAddresses) {
  auto text = begin();
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::uint64_t tensor = 0x40000 + 0x1000 * i;
    text.alloc_async(tensor, 512);
    text.copy(tensor, 0x20000, 512);
    text.launch(0, hex(0x10010) + hex(tensor + 4));
    text.free_async(tensor);
    text.synchronize();
  }
  Schedule schedule = schedule_of(text);
  ASSERT_EQ(schedule.ops.size(), 4u);
  ASSERT_EQ(schedule.objects.size(), 3u);
  EXPECT_TRUE(schedule.objects[0].step_local);
  EXPECT_EQ(schedule.objects[1].memory, MemoryKind::pinned);
  EXPECT_EQ(schedule.arena_bytes, 512u);
  EXPECT_EQ(schedule.ops[0].submit, Submit::plan);
  EXPECT_EQ(schedule.ops[0].object, 0u);
  EXPECT_EQ(schedule.ops[1].dst.object, 0u);
  EXPECT_EQ(schedule.ops[1].src.object, 1u);
  ASSERT_EQ(schedule.ops[2].pointers.size(), 2u);
  EXPECT_EQ(schedule.ops[2].pointers[0].pointer.offset, 0x10u);
  EXPECT_EQ(schedule.ops[2].pointers[1].at, 8u);
  EXPECT_EQ(schedule.ops[2].pointers[1].pointer.object, 0u);
  ASSERT_EQ(schedule.segments.size(), 1u);
  EXPECT_EQ(schedule.segments[0].edges, (std::vector<std::array<std::uint32_t, 2>>{{1, 2}}));
  EXPECT_EQ(schedule_text(schedule).find("262144"), std::string::npos) << "an address of the recording";
}

TEST(ScheduleBuilder, SaysWhatLaunchesWriteAndWhatTheyAreBelievedToRead) {
  auto text = begin();
  text.function("unknown", "[[0,8]]");
  text.alloc(0x50000, 0x1000);
  for (int i = 0; i < 4; ++i) {
    text.launch(0, hex(0x10010) + hex(0x50000));
    text.launch(0, hex(0x10010) + hex(0x10020));
    text.launch(1, hex(0x10000));
    text.synchronize();
  }
  Schedule schedule = schedule_of(text);
  ASSERT_EQ(schedule.ops.size(), 3u);
  EXPECT_EQ(schedule.ops[0].writes, std::vector<std::uint32_t>{0});
  EXPECT_EQ(schedule.ops[0].believed_reads, std::vector<std::uint32_t>{1}) << "the kernel's name says so";
  EXPECT_EQ(schedule.ops[1].writes, std::vector<std::uint32_t>{0});
  EXPECT_EQ(schedule.ops[1].believed_reads, std::vector<std::uint32_t>());
  EXPECT_FALSE(schedule.ops[2].writes);
  EXPECT_NE(schedule_text(schedule).find("\"writes\": [0], \"believed_reads\": [1]"), std::string::npos)
      << schedule_text(schedule);
}

TEST(ScheduleBuilder, FixesRangesOnWhichParallelismRests) {
  auto text = begin();
  text.alloc(0x30000, 0x1000);
  for (int i = 0; i < 4; ++i) {
    text.copy(0x10000, 0x20000, 256);             // 0: first half
    text.copy(0x10100, 0x20000, 256);             // 1: second half, beside the first
    text.copy(0x30000, 0x20000, 256);             // 2: an object of its own
    text.launch(0, hex(0x30000) + hex(0x10000));  // 3
    text.synchronize();
  }
  Schedule schedule = schedule_of(text);
  EXPECT_TRUE(schedule.ops[0].dst.fixed);
  EXPECT_TRUE(schedule.ops[1].dst.fixed);
  EXPECT_FALSE(schedule.ops[2].dst.fixed);
  EXPECT_FALSE(schedule.ops[0].src.fixed) << "all only read";
  EXPECT_FALSE(schedule.ops[3].pointers[0].pointer.fixed);
  EXPECT_FALSE(schedule.ops[3].pointers[1].pointer.fixed);
}

TEST(ScheduleBuilder, FixesInterleavedColumns) {
  auto text = begin();
  std::string rows = ",\"height\":4,\"dpitch\":64,\"spitch\":32";
  for (int i = 0; i < 4; ++i) {
    text.copy(0x10000, 0x20000, 32, 0, rows);
    text.copy(0x10020, 0x20000, 32, 0, rows);
    text.synchronize();
  }
  Schedule schedule = schedule_of(text);
  EXPECT_TRUE(schedule.ops[0].dst.fixed && schedule.ops[1].dst.fixed);
  EXPECT_TRUE(schedule.segments[0].edges.empty());
  EXPECT_EQ(schedule.segments[0].lanes, 2u);
}

// Against a check of every pair: two accesses to one object in one segment that do not conflict, though one of them
// writes, must both be fixed. The other way round, more may be fixed than must.
TEST(ScheduleBuilder, FixesWheneverAPairRestsOnRanges) {
  Random random(22);
  for (int round = 0; round < 2000; ++round) {
    StepAccesses accesses;
    StepObjects objects;
    objects.objects.resize(2);
    Segmentation segments;
    segments.segments.resize(1);
    std::uint32_t ops = 2 + test::below(random, 8);
    for (std::uint32_t op = 0; op < ops; ++op) {
      Access access;
      access.object = test::below(random, 2);
      access.whole = random() % 3 == 0;
      access.rect = {random() % 40, 1 + random() % 20, 0, 1};
      if (random() % 4 == 0) access.rect = {random() % 20, 1 + random() % 6, 8, 2 + random() % 3};
      if (access.whole) access.rect = {0, 64, 0, 1};
      access.writes = random() % 2;
      access.reads = !access.writes;
      accesses.all.push_back(access);
      OpAccesses entry;
      entry.first = op;
      entry.count = 1;
      accesses.ops.push_back(entry);
      segments.segments[0].ops.push_back(op);
    }
    auto fixed = fixed_accesses(accesses, objects, segments);
    for (std::uint32_t a = 0; a < ops; ++a)
      for (std::uint32_t b = 0; b < ops; ++b) {
        const Access &x = accesses.all[a], &y = accesses.all[b];
        if (a != b && x.object == y.object && (x.writes || y.writes) && !overlap(x.rect, y.rect)) {
          ASSERT_TRUE(fixed[a]) << "round " << round;
        }
      }
  }
}

test::TraceText random_program(Random& random) {
  auto text = begin();
  text.function("unknown", "[[0,8]]");
  std::vector<std::vector<unsigned>> step;
  for (std::uint32_t i = 4 + test::below(random, 20); i > 0; --i)
    step.push_back({static_cast<unsigned>(random() % 12), static_cast<unsigned>(random() % 6),
                    static_cast<unsigned>(random() % 6), static_cast<unsigned>(random() % 4)});
  for (std::uint64_t repeat = 0; repeat < 4; ++repeat) {
    std::uint64_t base = 0x100000 + repeat * 0x10000;
    for (std::uint64_t i = 0; i < 6; ++i) text.alloc_async(base + i * 0x1000, 0x800);
    for (const auto& op : step) {
      std::uint64_t a = base + op[1] * 0x1000, b = base + op[2] * 0x1000;
      if (op[0] < 6) text.launch(0, hex(a) + hex(b));
      if (op[0] == 6) text.copy(a + 256 * op[3], 0x20000, 256);
      if (op[0] == 7) text.copy(0x20000 + 256 * op[3], b + 256 * op[3], 256);
      if (op[0] == 8) text.set(a + 256 * op[3], 128);
      if (op[0] == 9) text.record(static_cast<int>(op[3]));
      if (op[0] == 10) text.synchronize();
      if (op[0] == 11) text.launch(1, hex(a));
    }
    for (std::uint64_t i = 0; i < 6; ++i) text.free_async(base + i * 0x1000);
    text.synchronize();
  }
  return text;
}

// Whatever is written goes through the replayer's own reader, which checks all that docs/reference/formats.md demands,
// and is unchanged.
TEST(ScheduleBuilder, WritesWhatTheReplayerReads) {
  Random random(23);
  int with_segments = 0;
  for (int round = 0; round < 200; ++round) {
    auto text = random_program(random);
    for (std::string_view policy : kPolicyNames) {
      AnalysisOptions options = test::believing();
      options.policy = policy;
      Schedule schedule = schedule_of(text, options);
      std::string written = schedule_text(schedule);
      Schedule read;
      ASSERT_NO_THROW(read = parse_schedule(written, "schedule")) << written;
      ASSERT_EQ(read.ops.size(), schedule.ops.size());
      ASSERT_EQ(read.segments.size(), schedule.segments.size());
      for (std::size_t s = 0; s < read.segments.size(); ++s) {
        ASSERT_EQ(read.segments[s].edges, schedule.segments[s].edges);
        ASSERT_EQ(read.segments[s].order, schedule.segments[s].order);
      }
      with_segments += !schedule.segments.empty();
    }
  }
  EXPECT_GT(with_segments, 400);
}

TEST(ScheduleBuilder, IsTheSameByteForByte) {
  Random random(24);
  for (int round = 0; round < 20; ++round) {
    auto text = random_program(random);
    EXPECT_EQ(schedule_text(schedule_of(text)), schedule_text(schedule_of(text)));
  }
}

}  // namespace
}  // namespace nimble::analyzer
