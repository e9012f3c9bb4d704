#include "analyzer/ledger/ledger.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::TimedStep;

// Two kernels that could run side by side, and one that needs both; the host is late with the last one.
Analysis branches() {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) {
    const double at = timed.now();
    timed.kernel(kA, kC, at + 4, 10);
    timed.kernel(kB, kC, at + 14, 10);
    timed.pass(30);
    timed.kernel(kC, kA, at + 40, 5);
    timed.pass(12);
  }
  return timed.analyze();
}

TEST(Ledger, EntriesSumUpToWhatIsLost) {
  const Analysis analysis = branches();
  const Ledger ledger = test::ledger_of(analysis);
  EXPECT_EQ(ledger.step_us, 45);
  EXPECT_EQ(ledger.idle_us, 20);
  EXPECT_EQ(ledger.narrow_us, 25);
  double sum = 0, by_cause = 0;
  for (const LedgerEntry& entry : ledger.entries) sum += entry.us();
  for (int cause = 0; cause < kLossCauses; ++cause) by_cause += ledger.of(static_cast<LossCause>(cause));
  EXPECT_DOUBLE_EQ(sum, 45);
  EXPECT_DOUBLE_EQ(by_cause, 45);
  EXPECT_EQ(ledger.of(LossCause::program_order), 10);
  EXPECT_TRUE(std::ranges::is_sorted(ledger.entries, std::greater<>(), &LedgerEntry::us));
}

TEST(Ledger, TextSaysWhatAndWhatHelps) {
  const Analysis analysis = branches();
  const Ledger ledger = test::ledger_of(analysis);
  const std::string text = ledger_text(analysis, ledger, DeviceModel(), 15);
  EXPECT_NE(text.find("step            45.0 us from a repeat's first op to the next one's"), std::string::npos) << text;
  EXPECT_NE(text.find("accounted for   100 % of both"), std::string::npos) << text;
  EXPECT_NE(text.find("program order: launch k was ready while launch k ran"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  program order (10.0 us): "), std::string::npos) << text;
  EXPECT_EQ(text.find("--most"), std::string::npos) << text;
  EXPECT_NE(ledger_text(analysis, ledger, DeviceModel(), 1).find("--most shows more"), std::string::npos);
}

TEST(Ledger, JsonHasTheSameFigures) {
  const Analysis analysis = branches();
  const Ledger ledger = test::ledger_of(analysis);
  const auto json = nlohmann::json::parse(ledger_json(analysis, ledger, DeviceModel()));
  EXPECT_EQ(json["nimble_ledger"], 1);
  EXPECT_EQ(json["step_us"], 45);
  double sum = 0;
  for (const auto& entry : json["entries"]) {
    sum += entry["idle_us"].get<double>() + entry["narrow_us"].get<double>();
    EXPECT_GT(entry["places"], 0);
    EXPECT_GE(entry["largest"]["at_us"], 0);
  }
  EXPECT_DOUBLE_EQ(sum, 45);
  EXPECT_EQ(json["causes"]["program order"], 10);
  EXPECT_EQ(json["accounted_for_us"], 45);
}

TEST(Ledger, WithoutTimesItSaysHowToGetThem) {
  TimedStep timed;
  for (int i = 0; i < 5; ++i) {
    timed.kernel(kA, kC, 0, -1);
    timed.kernel(kB, kC, 0, -1);
  }
  const Analysis analysis = timed.analyze();
  const Ledger ledger = test::ledger_of(analysis);
  EXPECT_EQ(ledger.times.repeats, 0u);
  EXPECT_TRUE(ledger.entries.empty());
  EXPECT_NE(ledger_text(analysis, ledger, DeviceModel(), 15).find("NIMBLE_TIMING"), std::string::npos);
}

}  // namespace
}  // namespace nimble::analyzer
