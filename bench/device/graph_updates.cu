// The cost of changing parameters of an executable graph: node by node, or by updating the whole graph, each while the
// graph runs and while it does not. Replay's way of patching is based on these figures (docs/decisions).
//
//   nvcc -std=c++17 -O2 bench/device/graph_updates.cu -lcuda -o graph_updates && ./graph_updates
//
// Prints a line of JSON for each combination: medians of microseconds of host time, of the changes and of the launch
// that follows.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void work(unsigned* out, unsigned value) {
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}
__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

namespace {

void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: error %d\n", what, result);
  std::exit(1);
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Graph {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> nodes;
};

CUfunction function_of(const void* symbol) {
  cudaFunction_t function = nullptr;
  check(cudaGetFuncBySymbol(&function, symbol), "cudaGetFuncBySymbol");
  return reinterpret_cast<CUfunction>(function);
}

// The first node spins for `cycles`.
Graph make(int nodes, long long cycles, CUdeviceptr memory) {
  Graph result;
  check(cuGraphCreate(&result.graph, 0), "cuGraphCreate");
  unsigned value = 0;
  for (int i = 0; i < nodes; ++i) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = i == 0 ? 1 : 32;
    params.blockDimY = params.blockDimZ = 1;
    void* first[] = {&cycles};
    void* other[] = {&memory, &value};
    params.func = function_of(i == 0 ? reinterpret_cast<const void*>(&spin) : reinterpret_cast<const void*>(&work));
    params.kernelParams = i == 0 ? first : other;
    CUgraphNode node = nullptr;
    check(cuGraphAddKernelNode(&node, result.graph, i == 0 ? nullptr : &result.nodes.back(), i == 0 ? 0 : 1, &params),
          "cuGraphAddKernelNode");
    result.nodes.push_back(node);
  }
  check(cuGraphInstantiate(&result.exec, result.graph, 0), "cuGraphInstantiate");
  return result;
}

void measure(int nodes, int changed, bool whole, bool running) {
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, 4096), "cuMemAlloc");
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const long long cycles = running ? 4'000'000 : 1;  // about 2 ms
  Graph graph = make(nodes, cycles, memory);
  const CUfunction kernel = function_of(reinterpret_cast<const void*>(&work));
  std::vector<double> change, launch;
  unsigned value = 0;
  for (int round = 0; round < 30; ++round) {
    check(cuGraphLaunch(graph.exec, stream), "cuGraphLaunch");
    if (!running) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    ++value;
    const double begin = now_us();
    for (int i = 0; i < changed; ++i) {
      CUDA_KERNEL_NODE_PARAMS params{};
      params.gridDimX = params.gridDimY = params.gridDimZ = 1;
      params.blockDimX = 32;
      params.blockDimY = params.blockDimZ = 1;
      void* arguments[] = {&memory, &value};
      params.func = kernel;
      params.kernelParams = arguments;
      CUgraphNode node = graph.nodes[1 + i * (nodes - 1) / changed];
      if (whole)
        check(cuGraphKernelNodeSetParams(node, &params), "cuGraphKernelNodeSetParams");
      else
        check(cuGraphExecKernelNodeSetParams(graph.exec, node, &params), "cuGraphExecKernelNodeSetParams");
    }
    if (whole) {
      CUgraphExecUpdateResultInfo info{};
      check(cuGraphExecUpdate(graph.exec, graph.graph, &info), "cuGraphExecUpdate");
    }
    const double changed_at = now_us();
    check(cuGraphLaunch(graph.exec, stream), "cuGraphLaunch");
    const double end = now_us();
    const bool still_running = cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (running && !still_running) continue;  // the first launch had finished: not the case to measure
    if (round < 5) continue;
    change.push_back(changed_at - begin);
    launch.push_back(end - changed_at);
  }
  if (change.empty()) return;
  std::printf(
      "{\"nodes\": %d, \"changed\": %d, \"by\": \"%s\", \"running\": %s, \"change_us\": %.2f, \"launch_us\": %.2f}\n",
      nodes, changed, whole ? "update" : "node", running ? "true" : "false", median(change), median(launch));
  std::fflush(stdout);
  check(cuGraphExecDestroy(graph.exec), "cuGraphExecDestroy");
  check(cuGraphDestroy(graph.graph), "cuGraphDestroy");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  check(cuMemFree(memory), "cuMemFree");
}

}  // namespace

int main() {
  check(cudaFree(nullptr), "cudaFree");  // the primary context
  for (const int nodes : {17, 129, 1025})
    for (const int changed : {1, (nodes - 1) / 16, (nodes - 1) / 4, nodes - 1})
      for (const bool running : {false, true})
        for (const bool whole : {false, true}) measure(nodes, changed, whole, running);
}
