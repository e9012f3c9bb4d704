#include "analyzer/pipeline.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "analyzer/check/checker.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/report/counts.h"
#include "analyzer/report/dot.h"
#include "analyzer/report/report.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

// A diamond: one kernel, two that read its result, one that joins them.
struct Diamond {
  test::TraceText text;
  explicit Diamond(bool self_contained = true, int second_stream = 0, bool with_events = false) {
    text.image(self_contained);
    text.function("_Z1fPfPKfS1_", "[[0,8],[8,8],[16,8]]");
    text.stream();
    text.stream();
    for (std::uint64_t i = 1; i < 7; ++i) text.alloc(i << 16, 0x100);
    for (int repeat = 0; repeat < 4; ++repeat) {
      f(2, 1, 1);
      if (with_events) {
        text.record(0);
        text.wait(0, second_stream);
      }
      f(3, 2, 1);
      f(4, 2, 1, second_stream);
      if (with_events) {
        text.record(1, second_stream);
        text.wait(1);
      }
      f(5, 3, 4);
      text.synchronize();
      text.synchronize(1);
    }
  }
  void f(std::uint64_t out, std::uint64_t a, std::uint64_t b, int stream = 0) {
    text.launch(0, hex(out << 16) + hex(a << 16) + hex(b << 16), stream);
  }
};

TEST(Analysis, FindsADiamond) {
  Analysis analysis = Diamond().text.analyze();
  EXPECT_EQ(analysis.plan.status, kExitOk);
  EXPECT_EQ(analysis.step.period, 4u);
  EXPECT_EQ(analysis.order.reduced.edges(), (std::vector<Dag::Edge>{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
  EXPECT_EQ(analysis.times.critical.nodes, 3u);
  EXPECT_EQ(analysis.order.concurrency.nodes, 2u);
  ASSERT_EQ(analysis.plan.lanes.size(), 1u);
  EXPECT_EQ(analysis.plan.lanes[0].assignment.lanes, 2u);
  EXPECT_EQ(analysis.plan.lanes[0].synchronizations, 2u);
  ASSERT_EQ(analysis.plan.policies.size(), std::size(kPolicyNames));
  for (const PolicyOutcome& outcome : analysis.plan.policies) {
    if (outcome.policy != "single") continue;
    EXPECT_EQ(outcome.synchronizations, 0u);
    EXPECT_LT(analysis.plan.policies[0].step_us, outcome.step_us);
  }
}

TEST(Analysis, UnknownKernelsOrderEverything) {
  Analysis analysis = Diamond(false).text.analyze();
  EXPECT_EQ(analysis.order.reduced.edges(), (std::vector<Dag::Edge>{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(analysis.order.concurrency.nodes, 1u);
  auto assumed = assumed_ops(analysis);
  ASSERT_EQ(assumed.size(), 1u);
  EXPECT_EQ(assumed[0].what, "f");
  EXPECT_EQ(assumed[0].count, 4u);
  EXPECT_EQ(assumed[0].why, "its image is not self-contained");
}

TEST(Analysis, SchedulesSeveralStreams) {
  Analysis analysis = Diamond(true, 1, true).text.analyze();
  EXPECT_EQ(analysis.plan.status, kExitOk) << analysis.plan.why_no_schedule;
  EXPECT_EQ(analysis.order.dependencies.race_count, 0u);
  auto report = nlohmann::json::parse(json_report(analysis));
  EXPECT_EQ(report["status"], kExitOk);
  EXPECT_EQ(report["step"]["streams"], 2);
  EXPECT_EQ(report["step"]["calls"], 10);
  EXPECT_EQ(analysis.plan.policies.size(), std::size(kPolicyNames));
}

TEST(Analysis, ReportsRaces) {
  Analysis analysis = Diamond(true, 1, false).text.analyze();
  EXPECT_EQ(analysis.plan.status, kExitUnschedulable);
  EXPECT_EQ(analysis.order.dependencies.race_count, 2u);
  EXPECT_NE(text_report(analysis).find("Possible races"), std::string::npos);
}

TEST(Analysis, DoesNotTrustATraceThatLostEvents) {
  std::string text = Diamond().text.str();
  text.replace(text.find("\"dropped\":0"), 11, "\"dropped\":3");
  test::TempFile file(text);
  Analysis analysis = analyze(read_trace(file.path()), test::believing());
  EXPECT_EQ(analysis.plan.status, kExitFailure);
  EXPECT_NE(analysis.plan.why_no_schedule.find("dropped 3 events"), std::string::npos);
}

TEST(Analysis, ATraceWithHolesMakesNoScheduleUnlessAskedTo) {
  Diamond diamond;
  diamond.text.event("nimble.coverage", R"("source":"cupti","seen":20,"recorded":18,"missed":[["cuLaunchKernel",2]])");
  Analysis analysis = diamond.text.analyze();
  EXPECT_EQ(analysis.plan.status, kExitUnschedulable);
  EXPECT_NE(analysis.plan.why_no_schedule.find("saw 18 of 20 launches"), std::string::npos);
  EXPECT_NE(text_report(analysis).find("missed: cuLaunchKernel, 2 times"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(json_report(analysis))["coverage"]["missed"]["cuLaunchKernel"], 2);
  AnalysisOptions options = test::believing();
  options.accept_partial = true;
  EXPECT_EQ(diamond.text.analyze(options).plan.status, kExitOk);
}

TEST(Analysis, WithoutAStepSaysSo) {
  test::TraceText text;
  text.stream();
  Analysis analysis = text.analyze();
  EXPECT_EQ(analysis.plan.status, kExitNoStep);
  EXPECT_NE(text_report(analysis).find("none"), std::string::npos);
  auto report = nlohmann::json::parse(json_report(analysis));
  EXPECT_EQ(report["status"], kExitNoStep);
}

TEST(Analysis, RulesMakeAnUnknownKernelKnown) {
  test::TempFile file(R"({"nimble_rules":1,"rules":[{"kernel":"f\\(.*","params":["out","in","in"]}]})");
  AnalysisOptions options = test::believing();
  options.rules.read(file.path());
  EXPECT_EQ(Diamond(false).text.analyze(options).order.reduced.edges(),
            Diamond(true).text.analyze().order.reduced.edges());
}

TEST(Report, JsonSaysWhatTheTextSays) {
  Analysis analysis = Diamond().text.analyze();
  auto report = nlohmann::json::parse(json_report(analysis));
  EXPECT_EQ(report["step"]["ops"], 4);
  EXPECT_EQ(report["step"]["calls"], 6);  // two synchronise
  EXPECT_EQ(report["step"]["repeats"], 4);
  EXPECT_EQ(report["host_waits"], 1);
  EXPECT_TRUE(report["direct"].empty());
  EXPECT_EQ(report["dependencies"]["all"], 4);
  EXPECT_EQ(report["dependencies"]["by_evidence"]["declared"], 4);
  EXPECT_EQ(report["max_concurrency"]["ops"], 2);
  EXPECT_EQ(report["policies"].size(), std::size(kPolicyNames));
  EXPECT_EQ(report["segments"][0]["synchronizations"], 2);
  EXPECT_NE(text_report(analysis).find("predicted by a simple model"), std::string::npos);
}

TEST(Report, JsonNamesWhatNoGraphHolds) {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
  text.stream();
  for (std::uint64_t i = 1; i < 5; ++i) text.alloc(i << 16, 0x100);
  for (int repeat = 0; repeat < 4; ++repeat) {
    text.launch(0, hex(2 << 16) + hex(1 << 16));
    text.launch(0, hex(3 << 16) + hex(2 << 16), 0, ",\"coop\":true");
    text.launch(0, hex(4 << 16) + hex(3 << 16), 0, ",\"attrs\":[4]");
    text.synchronize();
  }
  auto report = nlohmann::json::parse(json_report(text.analyze()));
  std::map<std::string, int> direct;
  for (const auto& reason : report["direct"]) direct[reason["why"]] = reason["ops"];
  EXPECT_EQ(direct, (std::map<std::string, int>{
                        {"alone between two cuts", 1}, {"cooperative launch", 1}, {"launch with attributes", 1}}));
}

TEST(Dot, HasEveryOpAndEveryNeededDependency) {
  std::string dot = dot_text(Diamond().text.analyze());
  for (const char* part : {"n0 [", "n3 [", "n0 -> n1", "n2 -> n3", "cluster_0"})
    EXPECT_NE(dot.find(part), std::string::npos) << part;
  EXPECT_EQ(dot.find("n0 -> n3"), std::string::npos);
}

// Branches whose tensors the program's pool lays on one another, or each at an address of its own.
struct Branches {
  test::TraceText text;
  explicit Branches(bool pool_reuses) {
    text.image(true);
    text.function("_Z1fPfPKf", "[[0,8],[8,8]]");
    text.stream();
    text.alloc(0x10000, 0x100);
    for (std::uint64_t i = 0; i < 4; ++i) text.alloc(0x20000 + i * 0x1000, 0x100);
    for (std::uint64_t repeat = 0; repeat < 4; ++repeat) {
      for (std::uint64_t i = 0; i < 4; ++i) {
        std::uint64_t tensor = pool_reuses ? 0x100000 : 0x100000 + (repeat * 4 + i) * 0x10000;
        text.alloc_async(tensor, 0x800);
        text.launch(0, hex(tensor) + hex(0x10000));
        text.launch(0, hex(0x20000 + i * 0x1000) + hex(tensor));
        text.free_async(tensor);
      }
      text.synchronize();
    }
  }
};

// While it records, the program's pool hands the same address out again within a step. Objects are told apart by birth
// and death, so that orders nothing.
TEST(Analysis, APoolThatReusesAddressesWhileRecordingMakesNoDependency) {
  Analysis reused = Branches(true).text.analyze(), apart = Branches(false).text.analyze();
  ASSERT_EQ(reused.plan.status, kExitOk);
  EXPECT_EQ(reused.order.reduced.edges(), (std::vector<Dag::Edge>{{1, 2}, {5, 6}, {9, 10}, {13, 14}}));
  EXPECT_EQ(reused.order.concurrency.nodes, 4u);
  Schedule one = build_schedule(reused), other = build_schedule(apart);
  one.trace_digest = other.trace_digest;
  EXPECT_EQ(schedule_text(one), schedule_text(other));
}

TEST(Analysis, TheMemoryPlanCostsNoConcurrency) {
  Analysis analysis = Branches(true).text.analyze();
  EXPECT_EQ(analysis.plan.lanes[0].assignment.lanes, 4u);
  EXPECT_EQ(analysis.plan.memory.arena_bytes, 4 * 0x800u) << "all four may be alive at one time now";
  EXPECT_EQ(analysis.plan.memory.program_peak_bytes, 0x800u);
  AnalysisOptions options = test::believing();
  options.policy = "single";
  analysis = Branches(true).text.analyze(options);
  EXPECT_EQ(analysis.plan.memory.arena_bytes, 0x800u);
  EXPECT_EQ(analysis.plan.memory.unpacked_bytes, 4 * 0x800u);
}

TEST(Analysis, AMemoryLimitMakesTheScheduleMoreSequential) {
  AnalysisOptions options = test::believing();
  for (std::string_view policy : {"cost", "nimble"}) {
    options.policy = policy;
    options.memory_limit = 4 * 0x800;
    Analysis enough = Branches(true).text.analyze(options);
    EXPECT_EQ(enough.plan.chosen, policy);
    EXPECT_EQ(enough.plan.memory_without_limit, 0u);
    options.memory_limit = 4 * 0x800 - 1;
    Analysis half = Branches(true).text.analyze(options);
    EXPECT_EQ(half.plan.status, kExitOk);
    EXPECT_EQ(half.plan.chosen, "cost");
    EXPECT_EQ(half.plan.lanes[0].assignment.lanes, 2u);
    EXPECT_EQ(half.plan.memory.arena_bytes, 2 * 0x800u);
    EXPECT_EQ(half.plan.memory_without_limit, 4 * 0x800u);
    EXPECT_FALSE(check_schedule(half, schedule_text(build_schedule(half)), "schedule").unordered);
    options.memory_limit = 0x800;
    Analysis one = Branches(true).text.analyze(options);
    EXPECT_EQ(one.plan.status, kExitOk);
    EXPECT_EQ(one.plan.chosen, "single");
    EXPECT_EQ(one.plan.memory.arena_bytes, 0x800u);
    options.memory_limit = 0x7ff;
    EXPECT_EQ(Branches(true).text.analyze(options).plan.status, kExitUnschedulable);
  }
}

}  // namespace
}  // namespace nimble::analyzer
