// The cost of instantiating graphs in a program that captures many in sequence, as serving engines do for each batch
// size and layer: on the simulated driver, bare and under libnimble.so with NIMBLE_GRAPHS=rewrite.
//
//   graph_captures GRAPHS LAYERS      prints JSON
//
// Each graph has two branches in every layer, and what joins them: four launches. Milliseconds of cuGraphInstantiate by
// the clock: the sum, and the median of the first and of the last twenty graphs.
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/host/driver_program.h"

namespace {

using nimble::bench::check;

constexpr std::size_t kBytes = 256, kSome = 20;
constexpr int kKernels = 4;

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int graphs = argc == 3 ? std::atoi(argv[1]) : 0, layers = argc == 3 ? std::atoi(argv[2]) : 0;
  if (graphs < 1 || layers < 1) {
    std::fputs("usage: graph_captures GRAPHS LAYERS\n", stderr);
    return 2;
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  nimble::bench::begin(context, module);
  CUfunction kernels[kKernels];
  for (int i = 0; i < kKernels; ++i)
    check(cuModuleGetFunction(&kernels[i], module, ("_Z5layerILi" + std::to_string(i) + "EEvPfPKff").c_str()),
          "cuModuleGetFunction");
  CUdeviceptr memory[kKernels + 1] = {};
  for (CUdeviceptr& each : memory) check(cuMemAlloc(&each, kBytes), "cuMemAlloc");
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  // From where to where: both branches read the previous layer's output.
  constexpr int kFrom[kKernels] = {0, 0, 1, 2}, kTo[kKernels] = {1, 2, 3, 0};
  std::vector<double> times;
  for (int graph = 0; graph < graphs; ++graph) {
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    for (int i = 0; i < layers * kKernels; ++i) {
      float factor = static_cast<float>(graph);
      void* parameters[] = {&memory[kTo[i % kKernels]], &memory[kFrom[i % kKernels]], &factor};
      check(cuLaunchKernel(kernels[i % kKernels], 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
    }
    CUgraph made = nullptr;
    CUgraphExec exec = nullptr;
    check(cuStreamEndCapture(stream, &made), "cuStreamEndCapture");
    const double begin = nimble::bench::nanoseconds(CLOCK_MONOTONIC);
    check(cuGraphInstantiate(&exec, made, 0), "cuGraphInstantiate");
    times.push_back((nimble::bench::nanoseconds(CLOCK_MONOTONIC) - begin) * 1e-6);
    check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  double sum = 0;
  for (const double time : times) sum += time;
  const std::size_t some = std::min(times.size(), kSome);
  std::printf(R"({"graphs": %d, "nodes": %d, "sum_ms": %.1f, "first_ms": %.2f, "last_ms": %.2f})"
              "\n",
              graphs, layers * kKernels, sum, median({times.begin(), times.begin() + static_cast<long>(some)}),
              median({times.end() - static_cast<long>(some), times.end()}));
}
