// What replay costs on the host, piece by piece: a driver API program with one thread and one stream that issues the
// same step again and again. Meant for the driver that does nothing (bench/null_driver), bare and under libnimble.so.
// scripts/bench runs it.
//
//   replay_overhead CASE SAMPLES STEPS      prints JSON
//
//   unchanged       64 launches and a synchronisation; parameters as in the step before
//   changed         the same; one number in each launch differs in each step
//   allocated       the same as unchanged, with a stream-ordered allocation for each launch, freed within the step
//   one_segment     64 launches, then 16 synchronisations
//   segments        16 times 4 launches and a synchronisation, so that each four are a segment
//   graph_launches  16 launches of the program's own graph: the driver's cost of one
//
// A sample is STEPS steps; nanoseconds per step of the thread's CPU time (cpu) and of wall time (elapsed). The program
// also counts what its thread allocates, in whatever library: up to the first sample (warm_up_allocations), and from
// there to the end of the last (allocations), where the program itself allocates nothing.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "bench/host/counted_malloc.h"
#include "bench/host/driver_program.h"

namespace {

using nimble::bench::allocations;
using nimble::bench::check;
using nimble::bench::nanoseconds;

constexpr int kBranches = 4;  // independent chains
constexpr int kLayers = 16;   // launches in each
constexpr int kWarmUpSteps = 64;
constexpr std::size_t kBytes = 256;

class Program {
 public:
  Program() {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    nimble::bench::begin(context, module);
    for (int i = 0; i < kLayers; ++i) {
      const std::string name = "_Z5layerILi" + std::to_string(i) + "EEvPfPKff";
      check(cuModuleGetFunction(&layers_[i], module, name.c_str()), "cuModuleGetFunction");
    }
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (auto& branch : buffers_) {
      for (CUdeviceptr& buffer : branch) check(cuMemAlloc(&buffer, kBytes), "cuMemAlloc");
    }
  }

  void unchanged() {
    for (int i = 0; i < kLayers; ++i) launch_layer(i);
    synchronize();
  }

  void changed() {
    factor_ = factor_ == 0.5f ? 0.25f : 0.5f;
    unchanged();
  }

  void allocated() {
    CUdeviceptr from[kBranches];
    for (int branch = 0; branch < kBranches; ++branch) from[branch] = buffers_[branch][0];
    for (int i = 0; i < kLayers; ++i) {
      for (int branch = 0; branch < kBranches; ++branch) {
        CUdeviceptr to = 0;
        check(cuMemAllocAsync(&to, kBytes, stream_), "cuMemAllocAsync");
        launch(layers_[i], to, from[branch]);
        if (i > 0) check(cuMemFreeAsync(from[branch], stream_), "cuMemFreeAsync");
        from[branch] = to;
      }
    }
    for (const CUdeviceptr last : from) check(cuMemFreeAsync(last, stream_), "cuMemFreeAsync");
    synchronize();
  }

  void one_segment() {
    for (int i = 0; i < kLayers; ++i) launch_layer(i);
    for (int i = 0; i < kLayers; ++i) synchronize();
  }

  void segments() {
    for (int i = 0; i < kLayers; ++i) {
      launch_layer(i);
      synchronize();
    }
  }

  void graph_launches() {
    if (!graph_) make_graph();
    for (int i = 0; i < kLayers; ++i) check(cuGraphLaunch(graph_, stream_), "cuGraphLaunch");
  }

 private:
  // The four branches interleaved, breadth first, as a framework issues them.
  void launch_layer(int i) {
    for (auto& branch : buffers_) launch(layers_[i], branch[i % 2], branch[(i + 1) % 2]);
  }

  void launch(CUfunction function, CUdeviceptr to, CUdeviceptr from) {
    void* parameters[] = {&to, &from, &factor_};
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
  }

  void synchronize() { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

  void make_graph() {
    CUgraph graph = nullptr;
    check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    launch_layer(0);
    check(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    check(cuGraphInstantiate(&graph_, graph, 0), "cuGraphInstantiate");
  }

  CUfunction layers_[kLayers] = {};
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
  CUdeviceptr buffers_[kBranches][2] = {};  // layers write one and read the other, by turns
  float factor_ = 0.5f;
};

struct Case {
  std::string_view name;
  void (Program::*step)();
  int launches, calls;  // per step: launches of kernels or graphs, and all calls that enqueue work
};

constexpr int kLaunches = kBranches * kLayers;
constexpr Case kCases[] = {
    {"unchanged", &Program::unchanged, kLaunches, kLaunches},
    {"changed", &Program::changed, kLaunches, kLaunches},
    {"allocated", &Program::allocated, kLaunches, 3 * kLaunches},
    {"one_segment", &Program::one_segment, kLaunches, kLaunches},
    {"segments", &Program::segments, kLaunches, kLaunches},
    {"graph_launches", &Program::graph_launches, kLayers, kLayers},
};

void print(const char* name, const std::vector<double>& values) {
  std::printf(", \"%s\": [", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.2f", i > 0 ? ", " : "", values[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 4 ? argv[1] : "";
  const Case* const chosen =
      std::find_if(std::begin(kCases), std::end(kCases), [&](auto& one) { return one.name == name; });
  const int samples = argc == 4 ? std::atoi(argv[2]) : 0, steps = argc == 4 ? std::atoi(argv[3]) : 0;
  if (chosen == std::end(kCases) || samples < 1 || steps < 1) {
    std::fprintf(stderr, "usage: replay_overhead CASE SAMPLES STEPS, where CASE is one of");
    for (const Case& one : kCases) std::fprintf(stderr, " %s", one.name.data());
    std::fprintf(stderr, "\n");
    return 2;
  }
  Program program;
  std::vector<double> cpu(static_cast<std::size_t>(samples)), elapsed(cpu.size());
  for (int i = 0; i < kWarmUpSteps; ++i) (program.*chosen->step)();
  const std::uint64_t before = allocations();
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    const double cpu_begin = nanoseconds(CLOCK_THREAD_CPUTIME_ID), begin = nanoseconds(CLOCK_MONOTONIC);
    for (int j = 0; j < steps; ++j) (program.*chosen->step)();
    cpu[i] = (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu_begin) / steps;
    elapsed[i] = (nanoseconds(CLOCK_MONOTONIC) - begin) / steps;
  }
  const std::uint64_t after = allocations();
  std::printf(
      "{\"case\": \"%s\", \"launches\": %d, \"calls\": %d, \"warm_up_allocations\": %llu, \"allocations\": %llu",
      chosen->name.data(), chosen->launches, chosen->calls, static_cast<unsigned long long>(before),
      static_cast<unsigned long long>(after - before));
  print("cpu_ns", cpu);
  print("elapsed_ns", elapsed);
  std::printf("}\n");
  return 0;
}
