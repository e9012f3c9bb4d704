#include "analyzer/plan/memory_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

// A step that is put together op by op.
struct StepOfObjects {
  std::uint32_t op(std::vector<std::uint32_t> used, std::uint32_t segment = kNone) {
    uses.first.push_back(static_cast<std::uint32_t>(uses.objects.size()));
    uses.objects.insert(uses.objects.end(), used.begin(), used.end());
    segments.segment.push_back(segment);
    auto number = static_cast<std::uint32_t>(segments.segment.size() - 1);
    if (segment != kNone) {
      if (segments.segments.size() <= segment) segments.segments.resize(segment + 1);
      segments.segments[segment].ops.push_back(number);
    }
    return number;
  }
  std::uint32_t alloc(std::uint64_t size) {
    StepObject object;
    object.size = size;
    object.step_local = true;
    object.alloc = op({});
    objects.objects.push_back(object);
    return static_cast<std::uint32_t>(objects.objects.size() - 1);
  }
  void free(std::uint32_t object) { objects.objects[object].free = op({}); }

  // `edges`: per segment, between nodes.
  MemoryPlan plan(std::vector<std::vector<Dag::Edge>> edges = {}, std::size_t pairwise = kPairwise,
                  std::uint64_t gap = 0) {
    edges.resize(segments.segments.size());
    StepUses closed = uses;
    closed.first.push_back(static_cast<std::uint32_t>(uses.objects.size()));
    plans.assign(edges.size(), {});
    for (std::size_t s = 0; s < edges.size(); ++s)
      plans[s].enforced = Dag(static_cast<std::uint32_t>(segments.segments[s].ops.size()), edges[s]);
    std::vector<std::uint32_t> stream = streams, record(segments.segment.size(), kNone);
    stream.resize(segments.segment.size(), 0);
    return plan_memory(objects, closed, segments, plans, StreamPaths(stream, record, 2), {}, gap, pairwise);
  }

  StepObjects objects;
  StepUses uses;
  Segmentation segments;
  std::vector<SegmentPlan> plans;
  std::vector<std::uint32_t> streams;  // of the first ops; the others are on stream 0
};

TEST(MemoryPlan, ObjectsThatLiveAtOneTimeAreApart) {
  StepOfObjects step;
  std::uint32_t a = step.alloc(100), b = step.alloc(512), c = step.alloc(1);
  for (std::uint32_t object : {b, a, c}) step.free(object);
  for (std::size_t pairwise : {std::size_t{0}, kPairwise}) {
    MemoryPlan plan = step.plan({}, pairwise);
    EXPECT_EQ(plan.arena_bytes, 1536u);
    EXPECT_EQ(std::set<std::uint64_t>(plan.offset.begin(), plan.offset.end()), (std::set<std::uint64_t>{0, 512, 1024}));
    EXPECT_EQ(plan.program_peak_bytes, 613u);
    EXPECT_EQ(plan.unpacked_bytes, 1536u);
  }
}

TEST(MemoryPlan, LargeObjectsHaveAGapAfterThem) {
  constexpr std::uint64_t kLarge = 16 * kPlanGap;
  StepOfObjects step;
  const std::uint32_t a = step.alloc(kLarge), b = step.alloc(kLarge), c = step.alloc(kLarge), small = step.alloc(100);
  for (std::uint32_t object : {b, a, small, c}) step.free(object);
  for (std::size_t pairwise : {std::size_t{0}, kPairwise}) {
    MemoryPlan plan = step.plan({}, pairwise, kPlanGap);
    EXPECT_EQ(plan.arena_bytes, 3 * (kLarge + kPlanGap) + 512);
    std::set<std::uint64_t> places{plan.offset[a], plan.offset[b], plan.offset[c]};
    EXPECT_EQ(places, (std::set<std::uint64_t>{0, kLarge + kPlanGap, 2 * (kLarge + kPlanGap)}));
    EXPECT_EQ(plan.offset[small], 3 * (kLarge + kPlanGap));
  }
}

TEST(MemoryPlan, WhatIsFreedIsFreeWithItsGap) {
  StepOfObjects step;
  for (int i = 0; i < 3; ++i) {
    std::uint32_t object = step.alloc(32 * kPlanGap);
    step.op({object}, 0);
    step.free(object);
  }
  for (std::size_t pairwise : {std::size_t{0}, kPairwise})
    EXPECT_EQ(step.plan({{{0, 1}, {1, 2}}}, pairwise, kPlanGap).arena_bytes, 33 * kPlanGap);
}

// a is used by node 0, b by node 1.
StepOfObjects one_after_the_other() {
  StepOfObjects step;
  for (int i = 0; i < 2; ++i) {
    std::uint32_t object = step.alloc(512);
    step.op({object}, 0);
    step.free(object);
  }
  return step;
}

TEST(MemoryPlan, SharingNeedsTheSchedulesOrderToo) {
  for (std::size_t pairwise : {std::size_t{0}, kPairwise}) {
    EXPECT_EQ(one_after_the_other().plan({{}}, pairwise).arena_bytes, 1024u) << "the graph may run them side by side";
    MemoryPlan ordered = one_after_the_other().plan({{{0, 1}}}, pairwise);
    EXPECT_EQ(ordered.arena_bytes, 512u);
    EXPECT_EQ(ordered.offset, (std::vector<std::uint64_t>{0, 0}));
    EXPECT_EQ(ordered.unpacked_bytes, 1024u);
    EXPECT_EQ(ordered.program_peak_bytes, 512u);
  }
}

TEST(MemoryPlan, SegmentsAndDirectOpsAreInOrder) {
  StepOfObjects step;
  for (std::uint32_t segment : {0u, 1u, kNone, kNone}) {
    std::uint32_t object = step.alloc(512);
    step.op({object}, segment);
    step.free(object);
  }
  EXPECT_EQ(step.plan().arena_bytes, 512u);
}

TEST(MemoryPlan, AnUnusedObjectBetweenTwoHidesNothing) {
  StepOfObjects step;
  for (bool used : {true, false, true}) {
    std::uint32_t object = step.alloc(512);
    if (used) step.op({object}, 0);
    step.free(object);
  }
  for (std::size_t pairwise : {std::size_t{0}, kPairwise})
    EXPECT_EQ(step.plan({{}}, pairwise).arena_bytes, 1024u) << "the third must not have the bytes of the first";
}

// In a step that diverges, an op that the schedule knows nothing of may use it.
TEST(MemoryPlan, OnSeveralStreamsAnUnusedObjectHasBytesOfItsOwnToo) {
  for (bool on_another : {false, true}) {
    StepOfObjects step;
    for (bool second : {false, true}) {
      std::uint32_t object = step.alloc(512);
      if (!second) step.op({object}, 0);
      step.free(object);
    }
    if (on_another) step.streams = {0, 0, 0, 1, 1};
    for (std::size_t pairwise : {std::size_t{0}, kPairwise})
      EXPECT_EQ(step.plan({{}}, pairwise).arena_bytes, on_another ? 1024u : 512u);
  }
}

TEST(MemoryPlan, SaysWhenItIsImpossible) {
  StepOfObjects step;
  step.free(step.alloc(kMaxArenaBytes));
  EXPECT_TRUE(step.plan().possible);
  step.free(step.alloc(1));
  EXPECT_FALSE(step.plan().possible) << "apart, which they may have to be";
  StepOfObjects huge;
  huge.free(huge.alloc(~std::uint64_t{0}));
  EXPECT_FALSE(huge.plan().possible);
}

// Random steps of several segments, with direct ops and graphs of any shape, against every pair.
TEST(MemoryPlan, EveryPairThatSharesBytesIsInOrder) {
  Random random(71);
  std::uint64_t packed = 0, unpacked = 0, peak = 0, pairs = 0;
  for (int round = 0; round < 400; ++round) {
    StepOfObjects step;
    std::vector<std::uint32_t> live, released;
    std::uint32_t segment = 0;
    for (std::uint32_t i = 20 + test::below(random, 150); i > 0; --i) {
      std::uint32_t what = test::below(random, 12);
      if (what < 4) live.push_back(step.alloc(1 + test::below(random, 2000)));
      if (what >= 4 && what < 7 && !live.empty()) {
        std::uint32_t which = test::below(random, static_cast<std::uint32_t>(live.size()));
        step.free(live[which]);
        released.push_back(live[which]);
        live.erase(live.begin() + which);
      }
      if (what == 7 && test::below(random, 4) == 0) {
        step.op(live.empty() ? live : std::vector{live.back()});  // direct
        if (segment < step.segments.segments.size()) ++segment;
      }
      if (what > 7 && !live.empty()) {
        std::vector<std::uint32_t> used{live[test::below(random, static_cast<std::uint32_t>(live.size()))],
                                        live[test::below(random, static_cast<std::uint32_t>(live.size()))]};
        // Half of the steps have pointers that were left over.
        if (round % 2 == 1 && !released.empty() && test::below(random, 8) == 0)
          used.push_back(released[test::below(random, static_cast<std::uint32_t>(released.size()))]);
        step.op(used, segment);
      }
    }
    for (std::uint32_t object : live) step.free(object);
    std::vector<std::vector<Dag::Edge>> edges;
    std::vector<std::vector<std::vector<bool>>> reached;
    for (const Segment& each : step.segments.segments) {
      Dag dag = test::random_dag(random, static_cast<std::uint32_t>(each.ops.size()),
                                 test::below(random, 3) == 0 ? 0.02 : 0.3);
      edges.push_back(dag.edges());
      reached.push_back(test::closure(dag));
    }
    auto node = [&](std::uint32_t op) {
      const auto& ops = step.segments.segments[step.segments.segment[op]].ops;
      return static_cast<std::size_t>(std::lower_bound(ops.begin(), ops.end(), op) - ops.begin());
    };
    std::vector<std::vector<std::uint32_t>> users(step.objects.objects.size());
    for (std::uint32_t op = 0; op < step.uses.first.size(); ++op) {
      std::size_t end = op + 1 < step.uses.first.size() ? step.uses.first[op + 1] : step.uses.objects.size();
      for (std::size_t i = step.uses.first[op]; i < end; ++i) users[step.uses.objects[i]].push_back(op);
    }
    for (std::size_t pairwise : {std::size_t{0}, kPairwise}) {
      MemoryPlan plan = step.plan(edges, pairwise);
      ASSERT_LE(plan.arena_bytes, plan.unpacked_bytes);
      ASSERT_GE(plan.arena_bytes, plan.program_peak_bytes);
      packed += plan.arena_bytes;
      unpacked += plan.unpacked_bytes;
      peak += plan.program_peak_bytes;
      const auto& objects = step.objects.objects;
      for (std::uint32_t b = 0; b < objects.size(); ++b) {
        ASSERT_EQ(plan.offset[b] % kPlanAlignment, 0u);
        ASSERT_LE(plan.offset[b] + objects[b].size, plan.arena_bytes);
        for (std::uint32_t a = 0; a < b; ++a) {  // allocated in this order
          if (plan.offset[a] + objects[a].size <= plan.offset[b] || plan.offset[b] + objects[b].size <= plan.offset[a])
            continue;
          ++pairs;
          ASSERT_LT(objects[a].free, objects[b].alloc) << "round " << round;
          for (std::uint32_t x : users[a])
            for (std::uint32_t y : users[b])
              ASSERT_TRUE(x <= y && (x == y || step.segments.segment[x] == kNone ||
                                     step.segments.segment[x] != step.segments.segment[y] ||
                                     reached[step.segments.segment[x]][node(x)][node(y)]))
                  << "round " << round << ": " << a << " by " << x << ", " << b << " by " << y;
        }
      }
    }
  }
  EXPECT_GT(pairs, 20000u);
  EXPECT_LT(packed, unpacked * 8 / 10) << "the program's peaks come to " << peak;
}

}  // namespace
}  // namespace nimble::analyzer
