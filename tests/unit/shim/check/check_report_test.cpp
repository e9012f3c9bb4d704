#include "shim/check/check_report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace nimble::shim {
namespace {

class CheckReportTest : public testing::Test {
 protected:
  CheckReportTest() {
    first_.name = "first";
    second_.name = "second";
  }

  AccessFault fault() const {
    AccessFault fault;
    fault.function = &first_;
    fault.grid = {4, 1, 1};
    fault.block = {64, 1, 1};
    fault.params.resize(24);
    const std::uint64_t words[] = {0x1010, 0x2000, 0x3000};
    std::memcpy(fault.params.data(), words, sizeof words);
    fault.said = {
        .memory = {{0x2000, 0x100, false}, {0x3000, 0x100, true}}, .evidence = Evidence::declared, .why_not = {}};
    fault.restricted = {.closed = {{0x1000, 0x100}, {0x5000, 0x100}}, .read_only = {{0x2000, 0x100}}};
    fault.result = CUDA_ERROR_ILLEGAL_ADDRESS;
    return fault;
  }

  FunctionInfo first_, second_;
  CheckReport report_;
};

TEST_F(CheckReportTest, CountsLaunches) {
  EXPECT_FALSE(report_.any_launch());
  for (int i = 0; i < 3; ++i) report_.launched(first_);
  report_.launched(second_);
  report_.passed(first_, {.closed = {{1, 1}, {2, 1}}, .read_only = {{3, 1}}});
  report_.passed(first_, {.closed = {{1, 1}}, .read_only = {}});
  report_.unknown(second_, "it follows memory");
  report_.skipped("a stream captures");
  report_.left_open("managed");
  EXPECT_TRUE(report_.any_launch());
  EXPECT_FALSE(report_.any_fault());
  EXPECT_EQ(
      report_.line(),
      "no fault: 2 of 4 launches checked, of 1 of 2 kernels; on average 1.5 objects were closed and 0.5 read-only; "
      "nothing is known about 1 more; not checked: a stream captures: 1; memory that stays open: managed: 1");
}

TEST_F(CheckReportTest, AFaultNamesTheWordsOfItsParameters) {
  EXPECT_EQ(CheckReport::line(fault()),
            "a launch of first with 4 x 1 x 1 blocks of 64 x 1 x 1 threads touched memory that it should not "
            "(CUDA_ERROR_ILLEGAL_ADDRESS). By evidence \"declared\", through the pointers at these bytes of its "
            "parameters it writes: 16; only reads: 8; neither: 0. 2 objects were closed to it, 1 read-only");
}

TEST_F(CheckReportTest, WritesAllOfIt) {
  report_.launched(first_);
  report_.failed(fault());
  EXPECT_TRUE(report_.any_fault());
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "check_report_test.json";
  std::filesystem::remove(file);
  EXPECT_EQ(report_.write(file.string()), "");
  const nlohmann::json json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json["nimble_stats"], 1);
  EXPECT_EQ(json["launches_checked"], 1);
  EXPECT_EQ(json["kernels"].size(), 1u);
  const nlohmann::json& found = json["faults"].at(0);
  EXPECT_EQ(found["kernel"], "first");
  EXPECT_EQ(found["said"].at(1)["writes"], true);
  EXPECT_EQ(found["closed"].at(0)["words"], nlohmann::json::array({0}));
  EXPECT_EQ(found["closed"].at(1)["words"], nlohmann::json::array());
  EXPECT_EQ(found["params"].get<std::string>().substr(0, 4), "1010");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace nimble::shim
