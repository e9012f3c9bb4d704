// The environment and the report at exit: each in a process of its own, which this program starts as itself.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fixture.h"

namespace {

// Runs one test of this program with more environment, and returns its exit status.
int run_child(const std::string& test, const std::vector<std::pair<std::string, std::string>>& environment) {
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    setenv("SIMCUDA_TEST_CHILD", "1", 1);
    const std::string filter = "--gtest_filter=" + test;
    execl("/proc/self/exe", "test_simcuda", filter.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define ONLY_AS_A_CHILD() \
  if (std::getenv("SIMCUDA_TEST_CHILD") == nullptr) GTEST_SKIP() << "runs in a process of its own"

class Child : public Simcuda {
 protected:
  void SetUp() override {
    ONLY_AS_A_CHILD();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoad(&module, SIMCUDA_TEST_IMAGE));
  }
  void TearDown() override {}
};

TEST_F(Child, InjectionsRacesAndAccesses) {
  CUdeviceptr memory = 0, none = 0;
  OK(cuMemAlloc(&memory, 64));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 64));
  OK(launch("fill", stream(), 1, 4, memory, 1, 4));
  OK(launch("fill", stream(), 1, 4, memory + 8, 1, 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(fork() == 0 ? (exit(0), 0) : 0, 0);  // a child of fork writes no report
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR description{4, 4, CU_AD_FORMAT_FLOAT, 1};
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate(&array, &description));
}

TEST_F(Child, MemoryIsPolledWithoutACall) {
  CUdeviceptr memory = 0;
  OK(cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<volatile int*>(memory) = 0;
  OK(launch("fill", stream(), 1, 1, memory, 5, 1));
  while (peek<int>(memory) != 5) usleep(1000);
}

TEST(Report, TellsWhatHappened) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("simcuda_report_" + std::to_string(getpid()));
  ASSERT_EQ(run_child("Child.InjectionsRacesAndAccesses", {{"SIMCUDA_REPORT", path.string()},
                                                           {"SIMCUDA_INJECT", "cuMemAlloc_v2:2:2,nonsense"},
                                                           {"SIMCUDA_RACES", "1"},
                                                           {"SIMCUDA_ACCESS", "1"}}),
            0);
  std::ifstream file(path);
  const nlohmann::json report = nlohmann::json::parse(file);
  std::filesystem::remove(path);
  EXPECT_EQ(report["submissions"], 2);
  EXPECT_EQ(report["calls"]["cuLaunchKernel"], 2);
  EXPECT_EQ(report["calls"]["cuMemAlloc_v2"], 2);
  EXPECT_EQ(report["unimplemented"]["cuArrayCreate_v2"], 1);
  ASSERT_EQ(report["races"].size(), 1u);
  EXPECT_EQ(report["races"][0]["first"]["name"], "fill");
  EXPECT_EQ(report["races"][0]["end"].get<std::uint64_t>() - report["races"][0]["begin"].get<std::uint64_t>(), 8u);
  EXPECT_EQ(report["illegal_accesses"].size(), 0u);
  ASSERT_EQ(report["accesses"].size(), 2u);
  EXPECT_EQ(report["accesses"][0]["writes"].size(), 1u);
  EXPECT_TRUE(report["accesses"][0]["exact"]);
  EXPECT_EQ(report["accesses"][0]["symbol"], "cuLaunchKernel");
  EXPECT_NE(report["accesses"][0]["call"], report["accesses"][1]["call"]) << "in whatever order they ran";
  EXPECT_EQ(report["accesses"][0]["thread"], report["accesses"][1]["thread"]);
  EXPECT_GT(report["simulated"]["gpu_busy_us"], 0);
}

TEST(Report, WorkGoesOnWhenIdle) {
  EXPECT_EQ(run_child("Child.MemoryIsPolledWithoutACall", {{"SIMCUDA_IDLE_MS", "5"}}), 0);
}

}  // namespace
