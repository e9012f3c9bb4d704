// Dependencies against a reference that compares every pair of ops.

#include "analyzer/order/dependencies.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

// A step made up of nothing but roles and accesses.
struct MadeUp {
  Trace trace;
  std::vector<std::uint32_t> calls;
  StepObjects objects;
  StepAccesses accesses;
  std::vector<std::uint32_t> event;
  std::vector<std::uint64_t> place;

  explicit MadeUp(int streams = 1, int object_count = 3, std::uint64_t size = 64) {
    for (int s = 0; s < streams; ++s) trace.streams.push_back({0, StreamKind::non_blocking, kNone});
    for (int i = 0; i < object_count; ++i) {
      StepObject object;
      object.size = size;
      objects.objects.push_back(object);
    }
  }

  void op(OpRole role, std::vector<Access> touched = {}, std::uint32_t stream = 0, std::uint32_t on_event = kNone) {
    TraceCall call;
    call.seq = trace.calls.size();
    call.kind = role == OpRole::record ? CallKind::event_record
                : role == OpRole::wait ? CallKind::event_wait
                                       : CallKind::launch;
    call.stream = stream;
    call.event = on_event;
    calls.push_back(static_cast<std::uint32_t>(trace.calls.size()));
    trace.calls.push_back(call);
    OpAccesses entry;
    entry.role = role;
    entry.evidence = role == OpRole::barrier ? Evidence::assumed : Evidence::declared;
    entry.first = static_cast<std::uint32_t>(accesses.all.size());
    entry.count = static_cast<std::uint32_t>(touched.size());
    accesses.all.insert(accesses.all.end(), touched.begin(), touched.end());
    accesses.ops.push_back(entry);
    event.push_back(on_event);
  }

  Dependencies find() const {
    HappensBefore order(trace, calls);
    return find_dependencies({accesses, order, objects, event, {}, place});
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(calls.size()); }

  // Whether two accesses are to the same bytes.
  bool meet(const Access& x, const Access& y) const {
    const auto is_placed = [&](const Access& a) { return !place.empty() && objects.objects[a.object].step_local; };
    if (!is_placed(x) || !is_placed(y)) return x.object == y.object && overlap(x.rect, y.rect);
    ByteRect a = x.rect, b = y.rect;
    a.begin += place[x.object];
    b.begin += place[y.object];
    return overlap(a, b);
  }
};

Access touch(std::uint32_t object, const ByteRect& region, bool reads, bool writes,
             Evidence evidence = Evidence::declared) {
  Access access;
  access.object = object;
  access.rect = region;
  access.reads = reads;
  access.writes = writes;
  access.evidence = evidence;
  return access;
}

ByteRect whole() { return {0, 64, 0, 1}; }

// Every pair that must stay in order, by the rules as they are written down.
struct Reference {
  std::vector<Dag::Edge> edges;
  std::uint64_t races = 0;
};

Reference reference(const MadeUp& step) {
  HappensBefore order(step.trace, step.calls);
  Reference result;
  auto role = [&](std::uint32_t op) { return step.accesses.ops[op].role; };
  for (std::uint32_t b = 0; b < step.size(); ++b)
    for (std::uint32_t a = 0; a < b; ++a) {
      if (role(a) == OpRole::none || role(b) == OpRole::none) continue;
      bool before = order.ordered(a, b);
      bool touches_a = step.accesses.ops[a].count > 0, touches_b = step.accesses.ops[b].count > 0;
      bool wanted = false, conflict = false;
      if (role(a) == OpRole::record) {
        // Only a wait comes after a record: the latest one of its event. And observable ops that the program puts after
        // it.
        bool latest = true;
        for (std::uint32_t between = a + 1; between < b; ++between)
          latest = latest && !(role(between) == OpRole::record && step.event[between] == step.event[a]);
        wanted = (role(b) == OpRole::wait && step.event[a] == step.event[b] && latest) || role(b) == OpRole::record ||
                 role(b) == OpRole::barrier || step.accesses.ops[b].tells;
      } else if (role(a) == OpRole::wait || role(b) == OpRole::wait) {
        wanted = false;
      } else if (role(b) == OpRole::record) {
        wanted = before;
      } else if (role(a) == OpRole::barrier || role(b) == OpRole::barrier) {
        wanted = before;
        conflict = role(a) == OpRole::barrier ? touches_b : touches_a;
      } else {
        for (const Access& x : step.accesses.of(a))
          for (const Access& y : step.accesses.of(b))
            conflict = conflict || ((x.writes || y.writes) && step.meet(x, y));
        wanted = conflict || step.accesses.ops[a].hears || step.accesses.ops[b].tells;
      }
      const OpAccesses &first = step.accesses.ops[a], &second = step.accesses.ops[b];
      const bool talks_a = first.communicates != Communicates::no, talks_b = second.communicates != Communicates::no;
      if (talks_a && talks_b) wanted = conflict = true;
      if ((talks_a || first.blocks_wait) && (talks_b || second.blocks_wait)) wanted = true;
      if ((talks_a || talks_b) && first.shares && second.shares) wanted = true;
      if (conflict && !before) ++result.races;
      if (wanted && before) result.edges.push_back({a, b});
    }
  return result;
}

std::vector<Dag::Edge> pairs(const Dependencies& dependencies) {
  std::vector<Dag::Edge> edges;
  for (const Dependency& dependency : dependencies.all) edges.push_back({dependency.from, dependency.to});
  return edges;
}

void expect_as_reference(const MadeUp& step, int round) {
  Dependencies found = step.find();
  Reference wanted = reference(step);
  ASSERT_EQ(found.race_count > 0, wanted.races > 0) << "round " << round;
  // No dependency without a reason ...
  std::sort(wanted.edges.begin(), wanted.edges.end());
  for (const Dag::Edge& edge : pairs(found))
    ASSERT_TRUE(std::binary_search(wanted.edges.begin(), wanted.edges.end(), edge))
        << "round " << round << ": " << edge[0] << " -> " << edge[1] << " has no reason";
  // ... and together they imply all that there must be.
  if (wanted.races > 0) return;
  auto have = test::closure(Dag(step.size(), pairs(found))), need = test::closure(Dag(step.size(), wanted.edges));
  for (std::uint32_t a = 0; a < step.size(); ++a)
    for (std::uint32_t b = a + 1; b < step.size(); ++b)
      ASSERT_EQ(have[a][b], need[a][b]) << "round " << round << ": " << a << " -> " << b;
}

MadeUp random_step(Random& random, int streams, bool rectangles, bool talk = false) {
  MadeUp step(streams, 1 + static_cast<int>(random() % 4));
  std::uint32_t ops = 2 + test::below(random, 24);
  for (std::uint32_t i = 0; i < ops; ++i) {
    std::uint32_t stream = test::below(random, static_cast<std::uint32_t>(streams)), event = test::below(random, 3);
    unsigned what = random() % 16;
    if (what == 0 || (streams > 1 && what == 4)) {
      step.op(OpRole::record, {}, stream, event);
    } else if (what == 1 || (streams > 1 && what >= 5 && what < 9)) {
      step.op(OpRole::wait, {}, stream, event);
    } else if (what == 2) {
      step.op(OpRole::barrier, {}, stream);
      if (talk && random() % 2 == 0) step.accesses.ops.back().communicates = Communicates::by_rule;
    } else if (what == 3) {
      step.op(OpRole::none, {}, stream);
    } else {
      std::vector<Access> touched;
      for (std::uint32_t k = random() % 4; k > 0; --k) {
        ByteRect region = whole();
        if (random() % 2 == 0) region = {random() % 60, 1 + random() % 16, 0, 1};
        if (rectangles && random() % 2 == 0)
          region = normalized({random() % 20, 1 + random() % 8, 8, 1 + random() % 5});
        unsigned access = 1 + random() % 3;
        touched.push_back(touch(test::below(random, static_cast<std::uint32_t>(step.objects.objects.size())), region,
                                access & 1, access & 2));
      }
      step.op(OpRole::accesses, touched, stream);
      if (!talk) continue;
      constexpr Communicates kTalk[] = {Communicates::no, Communicates::no, Communicates::by_memory,
                                        Communicates::by_rule};
      OpAccesses& entry = step.accesses.ops.back();
      entry.communicates = kTalk[random() % 4];
      entry.shares = entry.communicates == Communicates::by_memory || random() % 4 == 0;
      entry.blocks_wait = random() % 4 == 0;
      entry.tells = entry.shares && random() % 3 == 0;
      entry.hears = entry.communicates == Communicates::by_memory && random() % 3 == 0;
    }
  }
  return step;
}

TEST(Dependencies, MatchTheReferenceOnOneStream) {
  Random random(12);
  for (int round = 0; round < 4000; ++round) expect_as_reference(random_step(random, 1, false), round);
}

TEST(Dependencies, MatchTheReferenceWithRectangles) {
  Random random(13);
  for (int round = 0; round < 4000; ++round) expect_as_reference(random_step(random, 1, true), round);
}

TEST(Dependencies, MatchTheReferenceOnSeveralStreams) {
  Random random(14);
  for (int round = 0; round < 4000; ++round)
    expect_as_reference(random_step(random, 2 + round % 2, round % 4 == 0), round);
}

TEST(Dependencies, MatchTheReferenceWhereOpsMayBeTalkingToOthers) {
  Random random(15);
  for (int round = 0; round < 6000; ++round)
    expect_as_reference(random_step(random, 1 + round % 3, round % 4 == 0, true), round);
}

// Objects of the step's own that lie one upon another in part, beside others.
TEST(Dependencies, MatchTheReferenceWhereTheStepsOwnMemoryHasItsPlace) {
  Random random(16);
  for (int round = 0; round < 4000; ++round) {
    MadeUp step = random_step(random, 1, round % 4 == 0);
    for (StepObject& object : step.objects.objects) {
      object.step_local = random() % 4 != 0;
      step.place.push_back(0x302000000 + 16 * (random() % 10));
    }
    expect_as_reference(step, round);
  }
}

TEST(Dependencies, AreNamedByWhatTheyAre) {
  MadeUp step;
  step.op(OpRole::accesses, {touch(0, whole(), false, true, Evidence::exact)});
  step.op(OpRole::accesses, {touch(0, whole(), true, false, Evidence::declared)});
  step.op(OpRole::accesses, {touch(0, whole(), false, true, Evidence::exact)});
  step.op(OpRole::accesses, {touch(0, whole(), false, true, Evidence::exact)});
  Dependencies found = step.find();
  ASSERT_EQ(found.all.size(), 4u);
  auto expect = [&](std::size_t i, std::uint32_t from, std::uint32_t to, DependencyKind kind, Evidence evidence) {
    EXPECT_EQ(found.all[i].from, from);
    EXPECT_EQ(found.all[i].to, to);
    EXPECT_EQ(found.all[i].kind, kind);
    EXPECT_EQ(found.all[i].evidence, evidence);
  };
  expect(0, 0, 1, DependencyKind::read_after_write, Evidence::declared);
  expect(1, 0, 2, DependencyKind::write_after_write, Evidence::exact);
  expect(2, 1, 2, DependencyKind::write_after_read, Evidence::declared);
  expect(3, 2, 3, DependencyKind::write_after_write, Evidence::exact);
}

// An op's own write must not hide from its read who wrote before.
TEST(Dependencies, ACopyWithinAnObjectReadsWhatWasWritten) {
  MadeUp step;
  step.op(OpRole::accesses, {touch(0, whole(), false, true)});
  step.op(OpRole::accesses, {touch(0, whole(), false, true), touch(0, whole(), true, false)});
  Dependencies found = step.find();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].kind, DependencyKind::read_after_write);
}

TEST(Dependencies, ReadersDoNotDependOnEachOther) {
  MadeUp step;
  for (int i = 0; i < 5; ++i) step.op(OpRole::accesses, {touch(0, whole(), true, false)});
  EXPECT_TRUE(step.find().all.empty());
}

TEST(Dependencies, MappingsMayShowTheSameMemory) {
  MadeUp step;
  step.objects.objects[0].memory = step.objects.objects[1].memory = MemoryKind::mapped;
  step.op(OpRole::accesses, {touch(0, whole(), false, true)});
  step.op(OpRole::accesses, {touch(1, whole(), true, false)});
  step.op(OpRole::accesses, {touch(2, whole(), true, false)});
  Dependencies found = step.find();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].to, 1u);
}

// A barrier costs edges for what is open, not for all that ever was.
TEST(Dependencies, StayFewAroundManyBarriers) {
  MadeUp step;
  for (int i = 0; i < 3000; ++i) {
    step.op(OpRole::accesses, {touch(static_cast<std::uint32_t>(i % 3), whole(), true, true)});
    step.op(OpRole::barrier);
  }
  EXPECT_LE(step.find().all.size(), 3u * 3000);
}

TEST(Dependencies, AreFewWhenManyRectanglesAreWritten) {
  MadeUp step(1, 1, 1 << 20);
  for (std::uint64_t i = 0; i < 2000; ++i)
    step.op(OpRole::accesses, {touch(0, {i % 500 * 2, 2, 1000, 1000}, false, true)});
  Dependencies found = step.find();
  EXPECT_GT(found.all.size(), 0u);  // beyond the limit, hulls are compared
  EXPECT_EQ(found.race_count, 0u);
}

TEST(Dependencies, MemoryThatOthersReachMayBeAnything) {
  MadeUp step(1, 2);
  step.objects.objects[0].memory = MemoryKind::mapped;
  step.objects.objects[1].memory = MemoryKind::external;
  step.op(OpRole::accesses, {touch(0, {0, 8, 0, 1}, false, true)});
  step.op(OpRole::accesses, {touch(1, {32, 8, 0, 1}, true, false)});
  EXPECT_EQ(step.find().all.size(), 1u);
}

TEST(Dependencies, AWaitDoesNotLeadToARecordThatALaunchHasReplaced) {
  for (bool replaced : {false, true}) {
    MadeUp step;
    step.op(OpRole::record, {}, 0, 7);
    step.op(OpRole::barrier, {}, 0, replaced ? 7 : kNone);
    step.op(OpRole::wait, {}, 0, 7);
    bool from_record = false;
    for (const Dependency& dependency : step.find().all)
      from_record = from_record || (dependency.from == 0 && dependency.to == 2);
    EXPECT_EQ(from_record, !replaced);
  }
}

// A size may lead to any buffer. If the program leaves an op there unordered, no race is told; all others stay ordered.
TEST(Dependencies, AccessesByChanceKeepWhatTheProgramOrdersAndRaceWithNothing) {
  const auto access = [](std::uint32_t object, bool writes, bool by_chance) {
    Access result;
    result.object = object;
    result.rect = {0, 64, 0, 1};
    result.whole = true;
    result.reads = true;
    result.writes = writes;
    result.by_chance = by_chance;
    return result;
  };
  MadeUp step(2);
  step.op(OpRole::accesses, {access(1, true, false)}, 0);
  step.op(OpRole::accesses, {access(0, true, false), access(1, true, true)}, 0);
  step.op(OpRole::accesses, {access(1, false, false)}, 1);
  step.op(OpRole::accesses, {access(1, false, false)}, 0);
  for (const bool is_chance : {true, false}) {
    step.accesses.all[2].by_chance = is_chance;
    const Dependencies found = step.find();
    const auto has = [&](std::uint32_t from, std::uint32_t to) {
      return std::ranges::any_of(found.all, [&](const Dependency& each) { return each.from == from && each.to == to; });
    };
    EXPECT_TRUE(has(0, 1));
    EXPECT_TRUE(has(1, 3));
    if (is_chance) {
      EXPECT_TRUE(has(0, 3)) << "what is written for sure is not hidden";
    }
    // Op 0 races with op 2 in any case; op 1 takes its place where it writes for sure.
    ASSERT_EQ(found.race_count, 1u);
    EXPECT_EQ(found.races.front().first, is_chance ? 0u : 1u);
    EXPECT_EQ(found.races.front().second, 2u);
  }
}

}  // namespace
}  // namespace nimble::analyzer
