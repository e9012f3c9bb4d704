#include "analyzer/page/page_data.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::TimedStep;

// Four steps of so many kernels, each of which needs the one before.
Analysis chain(int kernels, double us = 4) {
  TimedStep timed;
  const std::uint64_t objects[] = {kA, kB, kC};
  for (int step = 0; step < 4; ++step)
    for (int i = 0; i < kernels; ++i) {
      timed.kernel(objects[(i + 1) % 2], objects[i % 2], timed.now() + 2, us, i + 1);
      timed.pass(us);
    }
  return timed.analyze();
}

nlohmann::json data_of(const Analysis& analysis, std::uint32_t from = 0) {
  return nlohmann::json::parse(page_data(analysis, test::ledger_of(analysis), DeviceModel(), from));
}

TEST(PageData, HasEachOpOfTheStep) {
  const Analysis analysis = chain(9);
  const auto data = data_of(analysis);
  EXPECT_EQ(data["nimble_page"], 1);
  const std::uint32_t ops = analysis.step.period;
  EXPECT_EQ(data["until"], ops);
  for (const auto& [name, column] : data["ops"].items()) EXPECT_EQ(column.size(), ops) << name;
  for (const char* name : {"begin", "end", "lane"}) EXPECT_EQ(data["after"][name].size(), ops) << name;
  EXPECT_EQ(data["first_access"].size(), ops);
  for (const auto& number : data["ops"]["name"]) EXPECT_LT(number, data["texts"].size());
  EXPECT_EQ(data["dependencies"].size(), analysis.order.dependencies.all.size());
  EXPECT_EQ(data["needed"].size(), analysis.order.reduced.edges().size());
  EXPECT_EQ(data["accesses"].size(), analysis.evidence.accesses.all.size());
  for (const auto& access : data["accesses"]) EXPECT_LT(access[0], data["objects"].size());
}

TEST(PageData, TimesAreThoseOfTheRepeatThatTheLedgerIsOf) {
  const Analysis analysis = chain(9);
  const Ledger ledger = test::ledger_of(analysis);
  const auto data = data_of(analysis);
  const auto calls = analysis.step.calls_of(ledger.times.occurrence);
  const double origin = data["ops"]["begin"][0].get<double>() - ledger.times.begin_us[0];
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    EXPECT_NEAR(data["ops"]["end"][op].get<double>(), ledger.times.end_us[op] + origin, 0.002);
    EXPECT_NEAR(data["ops"]["call_begin"][op].get<double>(),
                analysis.input.trace().calls[calls[op]].host_begin_us + origin, 0.002);
  }
  double lost = 0;
  for (const auto& loss : data["losses"]) lost += loss[1].get<double>() - loss[0].get<double>();
  EXPECT_NEAR(lost, ledger.idle_us + ledger.narrow_us, 0.01);
  EXPECT_EQ(data["ledger"]["entries"].size(), ledger.entries.size());
}

TEST(PageData, TheCriticalPathIsAPath) {
  const Analysis analysis = chain(9);
  const auto data = data_of(analysis);
  std::vector<std::uint32_t> path;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op)
    if (data["ops"]["critical"][op] == 1) path.push_back(op);
  EXPECT_EQ(path.size(), analysis.times.critical.nodes);
  double us = 0;
  for (const std::uint32_t op : path) us += analysis.times.costs[op].device_us;
  EXPECT_NEAR(us, analysis.times.critical.us, 0.001);
}

TEST(PageData, OfALargeStepAPart) {
  const Analysis analysis = chain(static_cast<int>(kMostOpsOfPage) + 500, 0.5);
  ASSERT_GT(analysis.step.period, kMostOpsOfPage);
  const std::string text = page_data(analysis, test::ledger_of(analysis), DeviceModel(), 0);
  EXPECT_LT(text.size(), 4'500'000u);
  const auto data = nlohmann::json::parse(text);
  EXPECT_EQ(data["until"], kMostOpsOfPage);
  const auto rest = data_of(analysis, analysis.step.period - 10);
  EXPECT_EQ(rest["ops"]["name"].size(), 10u);
  for (const auto& dependency : rest["dependencies"]) {
    EXPECT_GE(dependency[0], rest["from"]);
    EXPECT_LT(dependency[1], rest["until"]);
  }
}

TEST(PageData, WithoutTimes) {
  const Analysis analysis = chain(5, -1);
  const auto data = data_of(analysis);
  EXPECT_FALSE(data["timed"]);
  EXPECT_TRUE(data["ledger"].is_null());
  EXPECT_TRUE(data["losses"].empty());
}

}  // namespace
}  // namespace nimble::analyzer
