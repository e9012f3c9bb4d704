// Which ops may be communicating, which ops keep their order because of that, and that every schedule keeps it.

#include "analyzer/order/communication.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "analyzer/check/checker.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/report/report.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

constexpr std::uint64_t kA = 0x10000, kB = 0x20000, kHost = 0x100000;

AnalysisOptions with_rules(const std::string& rules) {
  AnalysisOptions options = test::believing();
  if (!rules.empty()) options.rules.read_text("{\"nimble_rules\": 4, \"rules\": [" + rules + "]}", "rules");
  return options;
}

// A step that one of these makes, after the objects that all have: kA and kB of the device.
template <typename Step>
Analysis analyze(Step step, const AnalysisOptions& options = test::believing(), const std::string& memory = "") {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]");  // 0
  text.function("_Z4talkPf", "[[0,8]]");        // 1
  text.function("unknown", "[[0,8]]");          // 2
  text.function("ncclDevKernel_X", "[[0,8]]");  // 3
  text.stream();
  for (std::uint64_t i = 1; i < 10; ++i) text.alloc(i << 16, 0x1000);
  for (std::uint64_t i = 0; i < 8; ++i) text.alloc(kHost + (i << 16), 0x1000, memory.empty() ? "pinned" : memory);
  for (int i = 0; i < 4; ++i) {
    step(text);
    text.synchronize();
  }
  return text.analyze(options);
}

// The launches of one kernel each, with a parameter.
auto launches(std::initializer_list<std::pair<int, std::uint64_t>> list) {
  return [kernels = std::vector<std::pair<int, std::uint64_t>>(list)](test::TraceText& text) {
    for (const auto& [function, address] : kernels)
      text.launch(function, function == 0 ? hex(address) + hex(kB) : hex(address));
  };
}

bool depends(const Analysis& analysis, std::uint32_t from, std::uint32_t to) {
  return std::any_of(analysis.order.dependencies.all.begin(), analysis.order.dependencies.all.end(),
                     [&](const Dependency& d) { return d.from == from && d.to == to; });
}

TEST(Communication, RestsOnWhoElseReachesTheMemory) {
  const std::map<std::string, bool> expected{{"device", false}, {"pinned", true}, {"registered", true},
                                             {"managed", true}, {"mapped", true}, {"global", false}};
  for (const auto& [memory, communicates] : expected) {
    const Analysis analysis = analyze(launches({{1, kHost}, {1, kA}}), test::believing(), memory);
    EXPECT_EQ(analysis.evidence.accesses.ops[0].communicates, communicates ? Communicates::by_memory : Communicates::no)
        << memory;
    EXPECT_EQ(analysis.evidence.accesses.ops[0].shares, communicates) << memory;
    EXPECT_EQ(analysis.evidence.accesses.ops[1].communicates, Communicates::no) << memory;
  }
  EXPECT_TRUE(reached_by_others(MemoryKind::external));
  EXPECT_FALSE(reached_by_others(MemoryKind::stream_ordered));
}

TEST(Communication, OfMemoryThatOthersReachIsInOrderThoughItHasNothingInCommon) {
  const Analysis analysis = analyze(launches({{1, kHost}, {1, kA}, {1, kHost + 0x10000}}));
  EXPECT_TRUE(analysis.evidence.accesses.ops[0].tells && analysis.evidence.accesses.ops[0].hears);
  EXPECT_FALSE(analysis.evidence.accesses.ops[1].tells || analysis.evidence.accesses.ops[1].hears);
  ASSERT_TRUE(depends(analysis, 0, 2)) << "without it, two ranks may come in different order, and wait for ever";
  EXPECT_TRUE(depends(analysis, 0, 1)) << "it may have been told that the memory may be used";
  EXPECT_TRUE(depends(analysis, 1, 2)) << "an observer may conclude that it is done";
  for (const Dependency& order : analysis.order.dependencies.all) {
    EXPECT_EQ(order.kind, DependencyKind::order);
    EXPECT_EQ(order.object, kNone);
    EXPECT_EQ(order.evidence, Evidence::assumed);
  }
}

// The host may be watching its memory with no call to the driver. What it sees there tells it that all before is done,
// whatever it was.
TEST(Communication, WritesThatOthersCanSeeFollowAllEarlierOps) {
  const Analysis analysis = analyze([](test::TraceText& text) {
    text.launch(1, hex(kA));                       // 0: what only the device sees
    text.copy(kHost, kB, 64);                      // 1: data for the host
    text.set(kHost + 0x10000, 4);                  // 2: says that it is there
    text.launch(1, hex(kB + 0x40000));             // 3: nothing is waited for
    text.copy(kA + 0x30000, kHost + 0x40000, 64);  // 4: from the host
    text.copy(kHost + 0x50000, kB + 0x60000, 64);  // 5
  });
  for (const std::uint32_t op : {1u, 2u, 5u}) EXPECT_TRUE(analysis.evidence.accesses.ops[op].tells) << op;
  for (const std::uint32_t op : {0u, 3u, 4u}) EXPECT_FALSE(analysis.evidence.accesses.ops[op].tells) << op;
  const auto before = test::closure(analysis.order.reduced);
  for (const auto& [from, to] : {std::pair(0, 1), {1, 2}, {0, 2}, {3, 5}, {4, 5}, {2, 5}})
    EXPECT_TRUE(before[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)]) << from << ' ' << to;
  for (const auto& [from, to] : {std::pair(0, 3), {1, 3}, {2, 3}, {2, 4}, {3, 4}})
    EXPECT_FALSE(before[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)]) << from << ' ' << to;
  // And the check would find it missing.
  Schedule schedule = build_schedule(analysis);
  ASSERT_EQ(schedule.segments.size(), 1u);
  EXPECT_FALSE(check_schedule(analysis, schedule_text(schedule), "schedule").unordered);
  std::erase(schedule.segments[0].edges, std::array<std::uint32_t, 2>{1, 2});
  const CheckResult result = check_schedule(analysis, schedule_text(schedule), "schedule");
  ASSERT_TRUE(result.unordered);
  EXPECT_NE(result.unordered->why.find("which may be taken as a sign that op 1 is done"), std::string::npos)
      << result.unordered->why;
}

// One that only reads such memory may be waiting for the host, and tells it nothing.
TEST(Communication, ReadsOfWhatOthersWritePrecedeAllLaterOps) {
  const Analysis analysis = analyze([](test::TraceText& text) {
    text.launch(1, hex(kA));                                // 0
    text.launch(0, hex(kB) + hex(kHost));                   // 1: reads the host's
    text.launch(1, hex(kA + 0x20000));                      // 2
    text.launch(0, hex(kB + 0x30000) + hex(kA + 0x40000));  // 3
  });
  EXPECT_TRUE(analysis.evidence.accesses.ops[1].hears);
  EXPECT_FALSE(analysis.evidence.accesses.ops[1].tells);
  EXPECT_FALSE(depends(analysis, 0, 1));
  EXPECT_TRUE(depends(analysis, 1, 2));
  EXPECT_TRUE(depends(analysis, 1, 3));
  EXPECT_EQ(analysis.order.dependencies.all.size(), 2u);
}

TEST(Communication, IsWhatARuleSays) {
  const std::string talks = R"({"kernel": "talk.*", "communicates": true})";
  const Analysis by_name = analyze(launches({{1, kA}, {0, 0x30000}, {1, 0x40000}}), with_rules(talks));
  EXPECT_EQ(by_name.evidence.accesses.ops[0].communicates, Communicates::by_rule);
  EXPECT_EQ(by_name.evidence.accesses.ops[0].evidence, Evidence::declared)
      << "its signature still tells what it touches";
  EXPECT_FALSE(by_name.evidence.accesses.ops[0].shares);
  ASSERT_TRUE(depends(by_name, 0, 2));
  EXPECT_EQ(by_name.order.dependencies.all.front().evidence, Evidence::declared);
  EXPECT_FALSE(depends(analyze(launches({{1, kA}, {1, kB}})), 0, 1)) << "no rule says so";
  // It touches nothing that others see, so copies for the host may go beside it.
  const Analysis beside = analyze(
      [](test::TraceText& text) {
        text.copy(kHost, kB, 64);
        text.launch(1, hex(kA));
      },
      with_rules(talks));
  EXPECT_TRUE(beside.order.dependencies.all.empty());

  const auto silent = launches({{1, kHost}, {1, kHost + 0x10000}});
  const std::string talks_to_nobody = R"({"kernel": "talk.*", "communicates": false})";
  EXPECT_TRUE(analyze(silent, with_rules(talks_to_nobody)).order.dependencies.all.empty());
  EXPECT_TRUE(depends(analyze(silent, with_rules(talks + "," + talks_to_nobody)), 0, 1)) << "the first that says it";
}

TEST(Communication, BlocksThatWaitForEachOtherAreNotBesideOthersThatHoldTheirRoom) {
  const std::string waits = R"({"kernel": "talk.*", "blocks_wait": true})";
  const std::string collective = R"(, {"kernel": "_Z1f.*", "communicates": true})";
  const auto apart = launches({{1, kA}, {0, 0x30000}, {1, 0x40000}});
  const Analysis analysis = analyze(apart, with_rules(waits));
  EXPECT_TRUE(analysis.evidence.accesses.ops[0].blocks_wait && !analysis.evidence.accesses.ops[1].blocks_wait);
  ASSERT_TRUE(depends(analysis, 0, 2));
  EXPECT_EQ(analysis.order.dependencies.all.front().evidence, Evidence::declared);
  EXPECT_EQ(analysis.order.dependencies.all.size(), 1u);
  const Analysis with_collective = analyze(apart, with_rules(waits + collective));
  EXPECT_TRUE(depends(with_collective, 0, 1) && depends(with_collective, 1, 2));
  // Whether they communicate is another question.
  const auto with_a_flag = launches({{0, 0x30000}, {1, kHost}, {0, 0x40000}, {1, kHost + 0x10000}});
  const Analysis unknown = analyze(with_a_flag, with_rules(waits));
  EXPECT_TRUE(unknown.evidence.accesses.ops[1].tells && unknown.evidence.accesses.ops[1].hears);
  EXPECT_TRUE(depends(unknown, 0, 1));
  const Analysis flag =
      analyze(with_a_flag, with_rules(R"({"kernel": "talk.*", "blocks_wait": true, "communicates": false})"));
  EXPECT_FALSE(flag.evidence.accesses.ops[1].tells || flag.evidence.accesses.ops[1].hears);
  EXPECT_EQ(flag.evidence.accesses.ops[1].communicates, Communicates::no);
  EXPECT_TRUE(depends(flag, 1, 3));
  EXPECT_EQ(flag.order.dependencies.all.size(), 1u);
}

TEST(Communication, IsNotDeniedByWhatIsNotBelieved) {
  const auto silent = launches({{1, kHost}, {1, kHost + 0x10000}});
  AnalysisOptions options = with_rules(R"({"kernel": "talk.*", "communicates": false})");
  options.trust = Evidence::proven;
  EXPECT_TRUE(depends(analyze(silent, options), 0, 1));
  // Of a rule that has parameters and does not fit only the caution counts.
  const std::string params = R"({"kernel": "talk.*", "params": ["inout", "inout"], "communicates": )";
  EXPECT_TRUE(depends(analyze(silent, with_rules(params + "false}")), 0, 1));
  EXPECT_TRUE(depends(analyze(launches({{1, kA}, {1, kB}}), with_rules(params + "true}")), 0, 1));
}

TEST(Communication, OfKernelsOfWhichNothingElseIsKnownIsAMatterOfTheirName) {
  AnalysisOptions options = with_rules(R"({"kernel": "nccl\\w*Kernel.*", "communicates": true})");
  const Analysis analysis = analyze(launches({{3, kA}, {2, kA}, {1, kHost}}), options);
  EXPECT_EQ(analysis.evidence.accesses.ops[0].role, OpRole::barrier);
  EXPECT_EQ(analysis.evidence.accesses.ops[0].communicates, Communicates::by_rule);
  EXPECT_EQ(analysis.evidence.accesses.ops[1].communicates, Communicates::no) << "it is ordered with everything anyway";
  EXPECT_EQ(analysis.evidence.accesses.ops[2].communicates, Communicates::by_memory);
}

TEST(Communication, OfGraphsAndOtherCallsIsThatOfWhatTheyHold) {
  const Analysis analysis = analyze(
      [](test::TraceText& text) {
        const std::string listed = std::to_string(kHost), own = std::to_string(kA);
        text.call("opaque", R"("stream":0,"accesses":[[)" + listed + R"(,4,"r"]])");  // 0: a wait for a value
        text.call("opaque", R"("stream":0,"accesses":[[)" + own + R"(,4,"w"]])");     // 1
        const int collective = text.graph("[]", "[[1,\"" + hex(kA) + "\"]]");
        text.call("graph_launch", "\"stream\":0,\"graph\":" + std::to_string(collective));  // 2
        const int plain = text.graph("[]", "[[0,\"" + hex(kA) + hex(kB) + "\"]]");
        text.call("graph_launch", "\"stream\":0,\"graph\":" + std::to_string(plain));  // 3
      },
      with_rules(R"({"kernel": "talk.*", "communicates": true})"));
  EXPECT_EQ(analysis.evidence.accesses.ops[0].communicates, Communicates::by_memory);
  EXPECT_EQ(analysis.evidence.accesses.ops[1].communicates, Communicates::no);
  EXPECT_EQ(analysis.evidence.accesses.ops[2].communicates, Communicates::by_rule);
  EXPECT_EQ(analysis.evidence.accesses.ops[3].communicates, Communicates::no);
}

// What was exported may be read by others wherever it is; then only a rule that speaks for a kernel lets it go.
TEST(Communication, MayBeOverAnyMemoryWhereSomeWasExported) {
  AnalysisOptions options = with_rules(R"({"kernel": "talk.*", "params": ["inout"]})");
  const auto step = launches({{1, kA}, {1, kB}});
  EXPECT_FALSE(depends(analyze(step, options), 0, 1));
  bool first = true;
  const auto exported = [&](test::TraceText& text) {
    if (std::exchange(first, false)) text.call("hidden", "\"note\":\"cuIpcGetMemHandle\"");
    step(text);
  };
  const Analysis analysis = analyze(exported, options);
  EXPECT_EQ(analysis.evidence.accesses.ops[0].communicates, Communicates::by_memory);
  EXPECT_TRUE(depends(analysis, 0, 1));
}

// Six independent branches, every other with a kernel that talks; some policy would lay them wherever there is room.
Analysis branches(std::string_view policy, std::uint32_t max_lanes = kDefaultMaxLanes) {
  AnalysisOptions options = test::believing();
  options.policy = policy;
  options.max_lanes = max_lanes;
  return analyze(
      [](test::TraceText& text) {
        for (std::uint64_t i = 0; i < 6; ++i) {
          text.launch(0, hex((i + 1) << 16) + hex((i + 1) << 16));
          if (i % 2 == 0) text.launch(0, hex(kHost + (i << 16)) + hex((i + 1) << 16));
          text.launch(0, hex((i + 1) << 16) + hex((i + 1) << 16));
        }
      },
      options);
}

TEST(Communication, IsOnOneLaneAndInOrderUnderEveryPolicy) {
  for (const std::string_view policy : kPolicyNames)
    for (const std::uint32_t max_lanes : {1u, 2u, 3u, 64u}) {
      const Analysis analysis = branches(policy, max_lanes);
      const Schedule schedule = build_schedule(analysis);
      ASSERT_EQ(schedule.segments.size(), 1u);
      auto reached = test::closure(analysis.plan.lanes[0].enforced);
      std::vector<std::uint32_t> talk;
      for (std::uint32_t op = 0; op < schedule.ops.size(); ++op)
        if (analysis.evidence.accesses.ops[op].communicates != Communicates::no) talk.push_back(op);
      ASSERT_EQ(talk.size(), 3u);
      for (std::size_t i = 1; i < talk.size(); ++i) {
        EXPECT_EQ(schedule.ops[talk[i]].lane, schedule.ops[talk[0]].lane) << policy << ' ' << max_lanes;
        EXPECT_TRUE(reached[talk[i - 1]][talk[i]]) << policy;
      }
      for (const std::uint32_t op : talk) EXPECT_FALSE(schedule.ops[op].writes) << "no audit runs it twice";
      EXPECT_LE(schedule.segments[0].lanes, policy == "cost" ? max_lanes : policy == "levels" ? 4 : 7) << policy;
      EXPECT_FALSE(check_schedule(analysis, schedule_text(schedule), "schedule").unordered);
    }
}

TEST(Communication, OutOfOrderFailsTheCheck) {
  const Analysis analysis = analyze(launches({{1, kA}, {2, kB}, {1, kHost}, {1, kA + 0x20000}, {1, kB + 0x20000}}),
                                    with_rules(R"({"kernel": "talk.*", "communicates": true},
                                                  {"kernel": "unknown", "params": ["inout"]})"));
  Schedule schedule = build_schedule(analysis);
  std::size_t refused = 0;
  for (ScheduleSegment& segment : schedule.segments) {
    const auto edges = segment.edges;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      segment.edges = edges;
      segment.edges.erase(segment.edges.begin() + static_cast<std::ptrdiff_t>(e));
      const CheckResult result = check_schedule(analysis, schedule_text(schedule), "schedule");
      ASSERT_TRUE(result.unordered);
      EXPECT_NE(result.unordered->why.find("may both be communicating with another process or the host"),
                std::string::npos);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 3u);
}

TEST(Communication, IsInTheReports) {
  const Analysis analysis = branches("nimble");
  const std::string text = text_report(analysis), json = json_report(analysis);
  EXPECT_NE(text.find("on one lane, because they may be communicating:\n       3  f\n          because it touches "
                      "pinned memory, which others can reach\n"),
            std::string::npos)
      << text;
  EXPECT_NE(json.find(R"("communicating": [)"), std::string::npos) << json;
  EXPECT_NE(json.find("which others can reach\", \"ops\": 3}"), std::string::npos) << json;
}

// On two streams that the program left unordered no order can be given to them.
TEST(Communication, ThatTheProgramLeftUnorderedHasNoSchedule) {
  test::TraceText text;
  text.image(true);
  text.function("_Z4talkPf", "[[0,8]]");
  text.stream();
  text.stream();
  text.alloc(kA, 0x1000, "registered");
  text.alloc(kB, 0x1000, "registered");
  for (int i = 0; i < 4; ++i) {
    text.launch(0, hex(kA), 0);
    text.launch(0, hex(kB), 1);
    text.synchronize(0);
    text.synchronize(1);
  }
  const Analysis analysis = text.analyze();
  EXPECT_EQ(analysis.plan.status, kExitUnschedulable);
  ASSERT_EQ(analysis.order.dependencies.races.size(), 1u);
  EXPECT_TRUE(analysis.order.dependencies.races[0].communicate);
  EXPECT_NE(text_report(analysis).find("which may both be communicating"), std::string::npos) << text_report(analysis);
}

}  // namespace
}  // namespace nimble::analyzer
