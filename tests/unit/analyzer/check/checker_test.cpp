// The checker against a check of every pair, on schedules as they are made and with an edge taken out of them.

#include "analyzer/check/checker.h"

#include <gtest/gtest.h>

#include <optional>

#include "analyzer/base/errors.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;
using test::Random;
using Found = std::optional<std::pair<std::uint32_t, std::uint32_t>>;

// A step of kernels that are known and kernels that are not, of some that may be talking to others, of ranges, of
// columns that interleave, of mappings that may be the same memory, of records, and of places where the host waits.
test::TraceText random_program(Random& random) {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
  text.function("unknown", "[[0,8]]");
  text.function("_Z4talkPfPKf", "[[0,8],[8,8]]");
  text.function("_Z4waitPfPKf", "[[0,8],[8,8]]");
  text.stream();
  text.alloc(0x10000, 0x1000);
  text.alloc(0x20000, 0x1000, "pinned");
  text.alloc(0x30000, 0x400, "mapped");
  text.alloc(0x40000, 0x400, "mapped");
  std::vector<std::vector<std::uint32_t>> step;
  std::uint32_t kinds = 8 + test::below(random, 6);  // some programs have neither barriers nor waits
  for (std::uint32_t i = 4 + test::below(random, 24); i > 0; --i)
    step.push_back({test::below(random, kinds), test::below(random, 8), test::below(random, 8), test::below(random, 4),
                    test::below(random, 4)});
  for (std::uint64_t repeat = 0; repeat < 3; ++repeat) {
    std::uint64_t base = 0x100000 + repeat * 0x10000;
    for (std::uint64_t i = 0; i < 5; ++i) text.alloc_async(base + i * 0x1000, 0x800);
    auto tensor = [&](std::uint32_t i) {
      return i < 5 ? base + i * 0x1000 : i == 5 ? 0x10000 : i == 6 ? 0x30000 : std::uint64_t{0x40000};
    };
    for (const auto& op : step) {
      std::uint64_t a = tensor(op[1]), b = tensor(op[2]);
      if (op[0] < 4) text.launch(op[0] >= 2 ? op[0] == 3 ? 2 : 3 : 0, hex(a) + hex(b));
      if (op[0] == 4) text.copy(a + 128 * op[3], 0x20000, 64 + 64 * op[4]);
      if (op[0] == 5) text.copy(0x20000 + 128 * op[3], b, 64 + 64 * op[4]);
      if (op[0] == 6) text.set(a + 16 * op[3], 16, 0, ",\"height\":" + std::to_string(2 + op[4]) + ",\"dpitch\":64");
      if (op[0] == 7) text.copy(a + 16 * op[3], b + 16 * op[4], 32, 0, ",\"height\":3,\"dpitch\":64,\"spitch\":64");
      if (op[0] == 8 || op[0] == 9) text.record(static_cast<int>(op[3]));
      if (op[0] == 10) text.synchronize();
      if (op[0] == 11) text.copy(a, b, 64, 0, ",\"sync\":true");
      if (op[0] >= 12) text.launch(1, hex(a));
    }
    for (std::uint64_t i = 0; i < 5; ++i) text.free_async(base + i * 0x1000);
    text.synchronize();
  }
  return text;
}

AnalysisOptions options_with_talk() {
  AnalysisOptions options = test::believing();
  options.rules.read_text(R"({"nimble_rules": 4, "rules": [{"kernel": "talk.*", "communicates": true},
                                                             {"kernel": "wait.*", "blocks_wait": true}]})",
                          "rules");
  return options;
}

bool must_be_ordered(const Analysis& analysis, std::uint32_t a, std::uint32_t b) {
  const StepAccesses& accesses = analysis.evidence.accesses;
  OpRole first = accesses.ops[a].role, second = accesses.ops[b].role;
  if (second == OpRole::record || accesses.ops[b].tells || accesses.ops[a].hears) return true;
  if (first == OpRole::record) return second == OpRole::barrier;
  if (first == OpRole::barrier || second == OpRole::barrier) return true;
  const auto talks = [&](std::uint32_t op) { return accesses.ops[op].communicates != Communicates::no; };
  const auto waits = [&](std::uint32_t op) { return talks(op) || accesses.ops[op].blocks_wait; };
  if (waits(a) && waits(b)) return true;
  const auto shares = [&](std::uint32_t op) { return accesses.ops[op].shares; };
  if ((talks(a) && talks(b)) || ((talks(a) || talks(b)) && shares(a) && shares(b))) return true;
  const auto& objects = analysis.objects.objects;
  for (const Access& x : accesses.of(a))
    for (const Access& y : accesses.of(b)) {
      if (!x.writes && !y.writes) continue;
      bool mapped = objects[x.object].memory == MemoryKind::mapped && objects[y.object].memory == MemoryKind::mapped;
      if (mapped || (x.object == y.object && overlap(x.rect, y.rect))) return true;
    }
  return false;
}

// The pair that the checker must name; nothing where all is well.
Found expected(const Analysis& analysis, const Schedule& schedule) {
  for (std::uint32_t s = 0; s < schedule.segments.size(); ++s) {
    std::vector<std::uint32_t> ops, node(schedule.ops.size(), kNone);
    for (std::uint32_t op = 0; op < schedule.ops.size(); ++op)
      if (schedule.ops[op].segment == s) {
        node[op] = static_cast<std::uint32_t>(ops.size());
        ops.push_back(op);
      }
    std::vector<Dag::Edge> edges;
    for (const auto& [from, to] : schedule.segments[s].edges) edges.push_back({node[from], node[to]});
    auto reached = test::closure(Dag(static_cast<std::uint32_t>(ops.size()), std::move(edges)));
    for (std::uint32_t b = 0; b < ops.size(); ++b)
      for (std::uint32_t a = b; a-- > 0;)
        if (!reached[a][b] && must_be_ordered(analysis, ops[a], ops[b])) return {{ops[a], ops[b]}};
  }
  return {};
}

Found found(const Analysis& analysis, const Schedule& schedule, std::string* why = nullptr) {
  CheckResult result = check_schedule(analysis, schedule_text(schedule), "schedule");
  if (!result.unordered) return {};
  if (why != nullptr) *why = result.unordered->why;
  return {{result.unordered->first, result.unordered->second}};
}

TEST(Checker, NamesThePairThatAMissingEdgeLeavesUnordered) {
  Random random(31);
  int removed = 0, unordered = 0, named_the_edge = 0;
  for (int round = 0; round < 60; ++round) {
    auto text = random_program(random);
    for (std::string_view policy : kPolicyNames) {
      AnalysisOptions options = options_with_talk();
      options.policy = policy;
      Analysis analysis = text.analyze(options);
      ASSERT_EQ(analysis.plan.status, kExitOk) << analysis.plan.why_no_schedule;
      Schedule schedule = build_schedule(analysis);
      ASSERT_EQ(expected(analysis, schedule), Found()) << "round " << round;
      ASSERT_EQ(found(analysis, schedule), Found()) << "round " << round << ' ' << policy;
      for (ScheduleSegment& segment : schedule.segments)
        for (std::size_t e = 0; e < segment.edges.size(); ++e) {
          if (random() % 4 != 0) continue;
          auto edges = segment.edges;
          segment.edges.erase(segment.edges.begin() + static_cast<std::ptrdiff_t>(e));
          Found pair = found(analysis, schedule);
          ASSERT_EQ(pair, expected(analysis, schedule)) << "round " << round << ' ' << policy;
          ++removed;
          unordered += pair.has_value();
          // An edge that two conflicting ops need is the pair that is named.
          if (must_be_ordered(analysis, edges[e][0], edges[e][1])) {
            ASSERT_EQ(pair, Found({edges[e][0], edges[e][1]})) << "round " << round << ' ' << policy;
            ++named_the_edge;
          }
          segment.edges = std::move(edges);
        }
    }
  }
  EXPECT_GT(named_the_edge, 400);
  EXPECT_GT(removed - unordered, 5) << "of single's edges, many carry nothing";
}

// Graphs without most of their edges, so that little is implied by anything.
TEST(Checker, FindsTheFirstOfManyUnorderedPairs) {
  Random random(32);
  int without = 0;
  for (int round = 0; round < 250; ++round) {
    Analysis analysis = random_program(random).analyze(options_with_talk());
    if (analysis.plan.status != kExitOk) continue;  // one whose every repeat holds another
    Schedule schedule = build_schedule(analysis);
    for (ScheduleSegment& segment : schedule.segments)
      std::erase_if(segment.edges, [&](const auto&) { return random() % 2 == 0; });
    ASSERT_EQ(found(analysis, schedule), expected(analysis, schedule)) << "round " << round;
    without += found(analysis, schedule).has_value();
  }
  EXPECT_GT(without, 130);
}

struct Branches {
  Branches() {
    text.image(true);
    text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
    text.stream();
    text.alloc(0x10000, 0x1000);
    text.alloc(0x20000, 0x1000);
    for (std::uint64_t i = 0; i < 3; ++i) {
      std::uint64_t a = 0x40000 + 0x10000 * i, b = a + 0x1000;
      text.alloc_async(a, 512);
      text.alloc_async(b, 512);
      text.launch(0, hex(a) + hex(0x10000));  // 2
      text.launch(0, hex(b) + hex(0x20000));  // 3, beside it
      text.record(0);                         // 4
      text.free_async(a);
      text.free_async(b);
      text.synchronize();
    }
    analysis = text.analyze();
    schedule = build_schedule(analysis);
  }
  test::TraceText text;
  Analysis analysis;
  Schedule schedule;
};

TEST(Checker, ChecksTheMemoryPlan) {
  Branches it;
  EXPECT_EQ(found(it.analysis, it.schedule), Found());
  it.schedule.objects[1].plan_offset = it.schedule.objects[0].plan_offset + 256;
  std::string why;
  EXPECT_EQ(found(it.analysis, it.schedule, &why), Found({2, 3}));
  EXPECT_NE(why.find("memory plan"), std::string::npos) << why;
  it.schedule.segments[0].edges.insert(it.schedule.segments[0].edges.begin(), {2, 3});
  EXPECT_EQ(found(it.analysis, it.schedule), Found());
}

// A step that diverges may use an object that no op of the schedule uses.
TEST(Checker, OnSeveralStreamsUnusedMemoryIsNotSharedEither) {
  for (bool waits : {false, true}) {
    test::TraceText text;
    int streams[] = {text.stream("blocking"), text.stream("blocking")};
    text.alloc(0x10000, 0x1000);
    for (std::uint64_t i = 0; i < 3; ++i) {
      text.alloc_async(0x40000, 512, streams[0]);
      text.set(0x40000, 512, streams[0]);
      text.free_async(0x40000, streams[0]);
      text.record(0, streams[0]);
      if (waits) text.wait(0, streams[1]);
      text.alloc_async(0x50000, 512, streams[1]);
      text.free_async(0x50000, streams[1]);
      text.record(1, streams[1]);
      text.wait(1, streams[0]);
      text.synchronize(streams[0]);
    }
    Analysis analysis = text.analyze();
    Schedule schedule = build_schedule(analysis);
    EXPECT_EQ(schedule.objects[1].plan_offset, waits ? 0u : 512u);
    EXPECT_EQ(found(analysis, schedule), Found());
    schedule.objects[1].plan_offset = waits ? 0 : 256;
    std::string why;
    EXPECT_EQ(found(analysis, schedule, &why).has_value(), !waits);
    EXPECT_EQ(why.find("do not order their lifetimes") != std::string::npos, !waits) << why;
  }
}

TEST(Checker, KnowsWhatARecordShows) {
  Branches it;
  std::string why;
  it.schedule.segments[0].edges = {{3, 4}};
  EXPECT_EQ(found(it.analysis, it.schedule, &why), Found({2, 4}));
  EXPECT_NE(why.find("records an event"), std::string::npos) << why;
}

TEST(Checker, RefusesWhatDoesNotBelongToTheTrace) {
  auto message = [](auto change) -> std::string {
    Branches it;
    change(it.schedule);
    try {
      check_schedule(it.analysis, schedule_text(it.schedule), "schedule");
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  auto says = [&](auto change, const char* part) {
    std::string text = message(change);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(message([](Schedule&) {}), "none");
  says([](Schedule& s) { s.trace_digest = "0"; }, "trace_digest: is 0");
  says([](Schedule& s) { s.ops.pop_back(); }, "ops: ");
  says([](Schedule& s) { s.objects.pop_back(); }, "objects: ");
  says([](Schedule& s) { s.objects[1].size = 1; }, "objects[1].size: ");
  says([](Schedule& s) { s.objects[0].plan_offset = s.arena_bytes; }, "objects[0].plan_offset: is outside");
  says([](Schedule& s) { s.objects[2].step_local = true; }, "objects[2].");
  says([](Schedule& s) { s.ops[2].kind = CallKind::set; }, "ops[2].kind: ");
  says([](Schedule& s) { s.ops[2].submit = Submit::plan; }, "ops[2].segment: does not go with submit");
  says(
      [](Schedule& s) {
        s.ops[2].submit = Submit::plan;
        s.ops[2].segment = kNone;
        s.segments[0].edges.clear();
      },
      "ops[2].submit: is plan");
  says([](Schedule& s) { s.ops[2].segment = 7; }, "ops[2].segment: is not a segment");
  says([](Schedule& s) { s.segments[0].edges = {{3, 2}}; }, "segments[0].edges: must go from");
  says([](Schedule& s) { s.segments[0].edges = {{0, 2}}; }, "segments[0].edges: must go from");
  says(
      [](Schedule& s) {
        s.ops[3].submit = Submit::direct;  // in the middle of the segment
        s.ops[3].segment = kNone;
        s.segments[0].edges.clear();
      },
      "ops[4].segment: has ended before");
  Branches it;
  for (const char* text : {"", "[]", "{", "{\"nimble_schedule\": 1}", "{\"nimble_schedule\": 2}"})
    EXPECT_THROW(check_schedule(it.analysis, text, "schedule"), InputError) << text;
}

}  // namespace
}  // namespace nimble::analyzer
