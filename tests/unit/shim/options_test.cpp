#include "shim/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace nimble::shim {
namespace {

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
#define NIMBLE_OPTION(option, fallback, help) unsetenv("NIMBLE_" #option);
#include "nimble/options.def"
  }
  void TearDown() override { SetUp(); }
};

TEST_F(OptionsTest, NothingSetMeansOff) {
  const Options options = read_options();
  EXPECT_EQ(options.mode, Mode::off);
  EXPECT_EQ(options.trace, "trace.json");
  EXPECT_EQ(options.hold_us, 1000);
  EXPECT_EQ(options.complaint, "");
}

TEST_F(OptionsTest, ModesAreWords) {
  setenv("NIMBLE_MODE", "record", 1);
  EXPECT_EQ(read_options().mode, Mode::record);
  setenv("NIMBLE_MODE", "replay", 1);
  EXPECT_EQ(read_options().mode, Mode::replay);
  setenv("NIMBLE_MODE", "Record", 1);
  EXPECT_EQ(read_options().mode, Mode::off);
  EXPECT_NE(read_options().complaint.find("NIMBLE_MODE=Record"), std::string::npos);
}

TEST_F(OptionsTest, FileNamesKnowProcessAndRank) {
  setenv("NIMBLE_TRACE", "a-%p-%r-%%-%x.json", 1);
  setenv("RANK", "3", 1);
  EXPECT_EQ(read_options().trace, "a-" + std::to_string(getpid()) + "-3-%-%x.json");
  unsetenv("RANK");
}

TEST_F(OptionsTest, NumbersThatAreNoneKeepTheDefault) {
  for (const char* text : {"0", "-5", "1ms", "", "99999999999999999999"}) {
    setenv("NIMBLE_HOLD_US", text, 1);
    EXPECT_EQ(read_options().hold_us, 1000) << text;
    EXPECT_EQ(read_options().complaint.empty(), *text == '\0') << text;
  }
  setenv("NIMBLE_HOLD_US", "250", 1);
  EXPECT_EQ(read_options().hold_us, 250);
}

TEST_F(OptionsTest, AuditsAreOffUnlessANumberIsGiven) {
  EXPECT_EQ(read_options().audit, 0u);
  setenv("NIMBLE_AUDIT", "25", 1);
  EXPECT_EQ(read_options().audit, 25u);
  EXPECT_EQ(read_options().complaint, "");
  for (const char* text : {"-1", "often", "3x", "5000000000"}) {
    setenv("NIMBLE_AUDIT", text, 1);
    EXPECT_EQ(read_options().audit, 0u) << text;
    EXPECT_NE(read_options().complaint.find("NIMBLE_AUDIT"), std::string::npos) << text;
  }
}

TEST_F(OptionsTest, WhetherReplayTriesIsOneOfThreeWords) {
  EXPECT_EQ(read_options().tune, Tune::start);
  setenv("NIMBLE_TUNE", "off", 1);
  EXPECT_EQ(read_options().tune, Tune::off);
  setenv("NIMBLE_TUNE", "sometimes", 1);
  EXPECT_EQ(read_options().tune, Tune::start);
  EXPECT_NE(read_options().complaint.find("NIMBLE_TUNE"), std::string::npos);
}

TEST_F(OptionsTest, AProbeIsAskedForByName) {
  EXPECT_FALSE(read_options().probe_writes);
  EXPECT_EQ(read_options().probe_limit_mib, 64);
  setenv("NIMBLE_PROBE", "writes", 1);
  setenv("NIMBLE_PROBE_LIMIT", "0", 1);
  EXPECT_TRUE(read_options().probe_writes);
  EXPECT_EQ(read_options().probe_limit_mib, 0);
  EXPECT_EQ(read_options().complaint, "");
  for (const char* text : {"-1", "all", "9999999999999999"}) {
    setenv("NIMBLE_PROBE_LIMIT", text, 1);
    EXPECT_EQ(read_options().probe_limit_mib, 64) << text;
    EXPECT_NE(read_options().complaint, "") << text;
  }
  setenv("NIMBLE_PROBE_FIRST", "400", 1);
  EXPECT_EQ(read_options().probe_first, 400);
  setenv("NIMBLE_PROBE_FIRST", "few", 1);
  EXPECT_EQ(read_options().probe_first, 0);
  setenv("NIMBLE_PROBE", "reads", 1);
  EXPECT_FALSE(read_options().probe_writes);
}

}  // namespace
}  // namespace nimble::shim
