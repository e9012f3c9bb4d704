// What a launch costs on the host where several threads launch at once: each has its own stream and repeats its step,
// 64 launches and a synchronisation. Meant for the driver that does nothing (bench/null_driver), bare and under each of
// libnimble.so's modes: contention between threads then shows as a cost that grows with their number. scripts/bench
// runs it.
//
//   thread_overhead THREADS SAMPLES STEPS      prints JSON
//
// The schedule is made from the first thread's step (with THREADS 1); the others launch kernels of other names. Threads
// are bound to cores, by turns. A sample is STEPS steps. Two measures of each, in nanoseconds per launch, for each
// thread:
//   cpu       time that the thread ran: what a launch costs, waiting in the kernel not included
//   elapsed   time that passed
#include <cuda.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/host/driver_program.h"

namespace {

using nimble::bench::check;
using nimble::bench::nanoseconds;

constexpr int kBranches = 4;  // independent chains
constexpr int kLayers = 16;   // launches in each
constexpr int kLaunches = kBranches * kLayers;
constexpr int kWarmUpSteps = 64;

struct Shared {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  int threads = 0, samples = 0, steps = 0;
  std::atomic<int> warm{0}, measured{0};
};

// Binds the calling thread to one of the cores that the process may use.
void bind_to_core(int index) {
  cpu_set_t all, mine;
  CPU_ZERO(&all);
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int left = index % CPU_COUNT(&all);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || left-- > 0) continue;
    CPU_SET(core, &mine);
    break;
  }
  sched_setaffinity(0, sizeof mine, &mine);
}

class alignas(128) Launcher {
 public:
  Launcher(Shared& shared, int index) : shared_(shared), index_(index) {}

  void run() {
    bind_to_core(index_);
    set_up();
    for (int i = 0; i < kWarmUpSteps; ++i) step();
    shared_.warm.fetch_add(1);
    while (shared_.warm.load() < shared_.threads) step();  // until all are warm
    const double launches = static_cast<double>(shared_.steps) * kLaunches;
    for (int i = 0; i < shared_.samples; ++i) {
      const double cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID), elapsed = nanoseconds(CLOCK_MONOTONIC);
      for (int j = 0; j < shared_.steps; ++j) step();
      cpu_.push_back((nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu) / launches);
      elapsed_.push_back((nanoseconds(CLOCK_MONOTONIC) - elapsed) / launches);
    }
    shared_.measured.fetch_add(1);
    while (shared_.measured.load() < shared_.threads) step();  // so that the others are measured with this one running
  }

  const std::vector<double>& cpu() const { return cpu_; }
  const std::vector<double>& elapsed() const { return elapsed_; }

 private:
  void set_up() {
    check(cuCtxSetCurrent(shared_.context), "cuCtxSetCurrent");
    for (int i = 0; i < kLayers; ++i) {
      const std::string name = (index_ == 0 ? "_Z5layerILi" : "_Z5otherILi") + std::to_string(i) + "EEvPfPKff";
      check(cuModuleGetFunction(&layers_[i], shared_.module, name.c_str()), "cuModuleGetFunction");
    }
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (auto& branch : buffers_) {
      for (CUdeviceptr& buffer : branch) check(cuMemAlloc(&buffer, 256), "cuMemAlloc");
    }
    cpu_.reserve(static_cast<std::size_t>(shared_.samples));
    elapsed_.reserve(static_cast<std::size_t>(shared_.samples));
  }

  // Breadth first, as a framework issues the layers of parallel branches.
  void step() {
    for (int i = 0; i < kLayers; ++i) {
      for (auto& branch : buffers_) {
        float factor = 0.5f;
        void* parameters[] = {&branch[i % 2], &branch[(i + 1) % 2], &factor};
        check(cuLaunchKernel(layers_[i], 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
      }
    }
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  Shared& shared_;
  const int index_;
  CUfunction layers_[kLayers] = {};
  CUstream stream_ = nullptr;
  CUdeviceptr buffers_[kBranches][2] = {};
  std::vector<double> cpu_, elapsed_;
};

void print(const char* name, const std::vector<Launcher>& launchers,
           const std::vector<double>& (Launcher::*values)() const) {
  std::printf(", \"%s\": [", name);
  const char* between_threads = "";
  for (const Launcher& launcher : launchers) {
    std::printf("%s[", between_threads);
    between_threads = ", ";
    const char* between_samples = "";
    for (const double value : (launcher.*values)()) {
      std::printf("%s%.2f", between_samples, value);
      between_samples = ", ";
    }
    std::printf("]");
  }
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  Shared shared;
  if (argc == 4) {
    shared.threads = std::atoi(argv[1]);
    shared.samples = std::atoi(argv[2]);
    shared.steps = std::atoi(argv[3]);
  }
  if (shared.threads < 1 || shared.samples < 1 || shared.steps < 1) {
    std::fprintf(stderr, "usage: thread_overhead THREADS SAMPLES STEPS\n");
    return 2;
  }
  nimble::bench::begin(shared.context, shared.module);

  std::vector<Launcher> launchers;
  launchers.reserve(static_cast<std::size_t>(shared.threads));
  for (int i = 0; i < shared.threads; ++i) launchers.emplace_back(shared, i);
  std::vector<std::thread> threads;
  for (Launcher& launcher : launchers) threads.emplace_back([&launcher] { launcher.run(); });
  for (std::thread& thread : threads) thread.join();
  std::printf("{\"launches_per_step\": %d", kLaunches);
  print("cpu_ns", launchers, &Launcher::cpu);
  print("elapsed_ns", launchers, &Launcher::elapsed);
  std::printf("}\n");
  return 0;
}
