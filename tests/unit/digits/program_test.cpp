// The program as a user runs it, in a process of its own, on the simulated driver.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace digits::test {
namespace {

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr, without the simulated driver's own lines
};

std::string without_driver_lines(const std::string& text) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);)
    if (line.rfind("simcuda: ", 0) != 0) kept += line + '\n';
  return kept;
}

class Program : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("digits_program_") + test.name() + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Runs `digits ARGUMENTS` in the test's folder, with further environment variables.
  Outcome run(const std::string& arguments, const std::string& environment = "") const {
    const std::string command = "cd '" + folder_.string() + "' && LD_LIBRARY_PATH='" DIGITS_DRIVER_FOLDER "' " +
                                environment + " '" DIGITS_PROGRAM "' " + arguments + " 2>&1";
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return outcome;
    char buffer[4096];
    for (std::size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
      outcome.output.append(buffer, count);
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.output = without_driver_lines(outcome.output);
    return outcome;
  }

  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  void expect_error(const Outcome& outcome, const std::string& line) const {
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.output, "digits: " + line + "\n");
  }

  std::filesystem::path folder_;
};

TEST_F(Program, GivesTheSameWeightsForTheSameSeed) {
  const Outcome first = run("train --steps 4 --seed 9 --save a.bin");
  ASSERT_EQ(first.status, 0) << first.output;
  ASSERT_EQ(run("train --steps 4 --seed 9 --save b.bin --quiet", "SIMCUDA_SEED=77").status, 0);
  ASSERT_EQ(run("train --steps 4 --seed 10 --save c.bin").status, 0);
  EXPECT_FALSE(read("a.bin").empty());
  EXPECT_EQ(read("a.bin"), read("b.bin"));
  EXPECT_NE(read("a.bin"), read("c.bin"));
  EXPECT_NE(first.output.find("weights: a.bin xxh3 "), std::string::npos) << first.output;
}

TEST_F(Program, SaysWhatItMeasured) {
  const Outcome train = run("train --steps 12 --batch 16 --save w.bin --stats train.json");
  ASSERT_EQ(train.status, 0) << train.output;
  const nlohmann::json stats = nlohmann::json::parse(read("train.json"));
  EXPECT_EQ(stats.at("steps"), 12);
  EXPECT_GE(stats.at("ops_per_step"), 200);
  EXPECT_GT(stats.at("host_us_per_step"), 0.0);
  EXPECT_GT(stats.at("gpu_us_per_step"), 0.0);
  EXPECT_EQ(stats.at("simulated"), true);
  EXPECT_FALSE(stats.at("device").get<std::string>().empty());
  EXPECT_NE(train.output.find("(simulated)"), std::string::npos) << train.output;
  EXPECT_NE(train.output.find(stats.at("weights_xxh3").get<std::string>()), std::string::npos);

  const Outcome infer = run("infer --weights w.bin --batch 3 --repeat 7 --stats infer.json");
  ASSERT_EQ(infer.status, 0) << infer.output;
  EXPECT_NE(infer.output.find("accuracy: "), std::string::npos) << infer.output;
  EXPECT_NE(infer.output.find("latency: batch 3, 7 runs: p50 "), std::string::npos) << infer.output;
  const nlohmann::json latency = nlohmann::json::parse(read("infer.json"));
  EXPECT_EQ(latency.at("accuracy"), stats.at("accuracy"));
  EXPECT_LE(latency.at("latency_us").at("p50"), latency.at("latency_us").at("p99"));
}

TEST_F(Program, NamesTheDevice) {
  const Outcome outcome = run("device");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("digits.simcuda"), std::string::npos) << outcome.output;
}

TEST_F(Program, RefusesAWrongCommandLine) {
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("fly").status, 2);
  EXPECT_EQ(run("train --epochs 0").status, 2);
  EXPECT_EQ(run("train --steps many").status, 2);
  EXPECT_EQ(run("infer").status, 2);
  EXPECT_EQ(run("train --help").status, 0);
}

TEST_F(Program, SaysInOneLineWhatIsWrong) {
  expect_error(run("train --data none.csv"), "cannot read the data file none.csv");
  expect_error(run("train --batch 2000"), "a batch of 2000 is more than the 1437 images for training");
  expect_error(run("infer --weights none.bin"), "cannot read the weights file none.bin");
  std::ofstream(folder_ / "broken.bin") << "DIGITSW1";
  expect_error(run("infer --weights broken.bin"), "broken.bin is no weights file for this network: it is cut short");
  ASSERT_EQ(run("train --steps 1 --save w.bin").status, 0);
  expect_error(run("infer --weights w.bin --batch 361"), "a batch of 361 is more than the 360 images for testing");
}

// Errors of the driver, early and in the middle of a step.
TEST_F(Program, NamesTheDriverCallThatFailed) {
  const auto expect_call = [&](const std::string& injection, const std::string& start) {
    const Outcome outcome = run("train --steps 3", "SIMCUDA_INJECT=" + injection);
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    EXPECT_EQ(outcome.output.substr(0, start.size()), start);
    EXPECT_EQ(outcome.output.find('\n'), outcome.output.size() - 1) << outcome.output;
  };
  expect_call("cuInit:1:100", "digits: cuInit failed: CUDA_ERROR_NO_DEVICE (");
  expect_call("cuMemAllocAsync:40:2", "digits: cuMemAllocAsync failed: CUDA_ERROR_OUT_OF_MEMORY (");
  expect_call("cuMemFreeAsync:40:1", "digits: cuMemFreeAsync failed: CUDA_ERROR_INVALID_VALUE (");
  expect_call("cuLaunchKernel:300:719", "digits: cuLaunchKernel failed: CUDA_ERROR_LAUNCH_FAILED (");
}

#ifndef DIGITS_SHORT_TESTS
TEST_F(Program, LearnsToReadDigits) {
  const Outcome train = run("train --epochs 6 --save w.bin --stats train.json");
  ASSERT_EQ(train.status, 0) << train.output;
  EXPECT_GE(nlohmann::json::parse(read("train.json")).at("accuracy"), 0.95) << train.output;
}
#endif

}  // namespace
}  // namespace digits::test
