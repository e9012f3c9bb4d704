// What a launch costs on the host: a driver API program that issues the same step again and again, as a training loop
// does. scripts/bench runs it bare and under each of libnimble.so's modes, and compares.
//
//   launch_overhead [--benchmark_...]
//
// Two measures of each step, in nanoseconds:
//   launches   the launch calls alone, from before the first to after the last
//   step       the same and the synchronisation that ends the step
#include <benchmark/benchmark.h>
#include <cuda.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr int kBranches = 4;  // independent chains
constexpr int kLayers = 16;   // launches in each
constexpr int kLaunches = kBranches * kLayers;
constexpr int kWarmUpSteps = 32;  // a recording needs three to find the step, a replay two to bind to it
constexpr std::size_t kBytes = 256;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "launch_overhead: %s failed with CUresult %d\n", what, static_cast<int>(result));
  std::exit(1);
}

// One device, one stream, two buffers for each branch. Lives until the process ends, as a program's would.
class Program {
 public:
  Program() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoad(&module, image().c_str()), "cuModuleLoad");
    for (int i = 0; i < kLayers; ++i) {
      const std::string name = "_Z5layerILi" + std::to_string(i) + "EEvPfPKff";
      check(cuModuleGetFunction(&layers_[i], module, name.c_str()), "cuModuleGetFunction");
    }
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (Branch& branch : branches_) {
      for (CUdeviceptr& buffer : branch.buffers) {
        check(cuMemAlloc(&buffer, kBytes), "cuMemAlloc");
        check(cuMemsetD8Async(buffer, 0, kBytes, stream_), "cuMemsetD8Async");
      }
    }
    synchronize();
    for (int i = 0; i < kWarmUpSteps; ++i) {
      launch_all();
      synchronize();
    }
  }

  // Breadth first, as a framework issues the layers of parallel branches.
  void launch_all() {
    for (int i = 0; i < kLayers; ++i) {
      for (Branch& branch : branches_) {
        float factor = 0.5f;
        void* parameters[] = {&branch.buffers[i % 2], &branch.buffers[(i + 1) % 2], &factor};
        check(cuLaunchKernel(layers_[i], 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
      }
    }
  }

  void synchronize() { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  struct Branch {
    CUdeviceptr buffers[2] = {};  // layers write one and read the other, by turns
  };

  static std::string image() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "launch_overhead.simcuda";
  }

  CUfunction layers_[kLayers] = {};
  CUstream stream_ = nullptr;
  Branch branches_[kBranches];
};

Program& program() {
  static Program the_program;
  return the_program;
}

void launches(benchmark::State& state) {
  Program& subject = program();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    subject.launch_all();
    const auto end = std::chrono::steady_clock::now();
    subject.synchronize();
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
  }
  state.counters["launches_per_step"] = kLaunches;
}

void step(benchmark::State& state) {
  Program& subject = program();
  for (auto _ : state) {
    subject.launch_all();
    subject.synchronize();
  }
  state.counters["launches_per_step"] = kLaunches;
}

}  // namespace

// Many short repetitions, of which scripts/bench takes the median: an interruption spoils only a few.
BENCHMARK(launches)->UseManualTime()->Iterations(20)->Repetitions(100);
BENCHMARK(step)->UseRealTime()->Iterations(20)->Repetitions(100);
BENCHMARK_MAIN();
