// Measures how the device runs branches, priorities and bandwidth inside one CUDA graph: the basis of
// analyzer/model/makespan.h and the policy `cost`. Prints one JSON object, times in microseconds, each the least of
// many launches.
//
//   nvcc -O2 -arch=native -o graph_branches bench/device/graph_branches.cu && ./graph_branches

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "graph_branches: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

__global__ void spin(long long cycles) {
  long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

__global__ void stream_copy(float4* to, const float4* from, long n) {
  for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) to[i] = from[i];
}

using Nodes = std::vector<cudaGraphNode_t>;

class Graph {
 public:
  Graph() { check(cudaGraphCreate(&graph_, 0)); }
  ~Graph() { cudaGraphDestroy(graph_); }

  cudaGraphNode_t add(void* function, int blocks, int threads, void** arguments, const Nodes& after, int priority = 0) {
    cudaKernelNodeParams params{};
    params.func = function;
    params.gridDim = blocks;
    params.blockDim = threads;
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    check(cudaGraphAddKernelNode(&node, graph_, after.data(), after.size(), &params));
    cudaLaunchAttributeValue value{};
    value.priority = priority;
    if (priority != 0) check(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &value));
    return node;
  }
  cudaGraphNode_t add_spin(long long cycles, const Nodes& after, int blocks = 1, int priority = 0) {
    void* arguments[] = {&cycles};
    return add(reinterpret_cast<void*>(spin), blocks, 64, arguments, after, priority);
  }

  // `patched`: a kernel node whose parameters are set again in the executable graph, or null.
  cudaGraphNode_t add_copy(void* to, void* from, std::size_t bytes, const Nodes& after) {
    cudaGraphNode_t node;
    check(
        cudaGraphAddMemcpyNode1D(&node, graph_, after.data(), after.size(), to, from, bytes, cudaMemcpyDeviceToDevice));
    return node;
  }

  double least_us(unsigned long long flags = 0, cudaGraphNode_t patched = nullptr, long long cycles = 0) {
    cudaGraphExec_t exec;
    check(cudaGraphInstantiate(&exec, graph_, flags));
    if (patched != nullptr) {
      cudaKernelNodeParams params;
      check(cudaGraphKernelNodeGetParams(patched, &params));
      void* arguments[] = {&cycles};
      params.kernelParams = arguments;
      check(cudaGraphExecKernelNodeSetParams(exec, patched, &params));
    }
    cudaStream_t stream;
    cudaEvent_t begin, end;
    check(cudaStreamCreate(&stream));
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    float least = 1e9f;
    for (int i = 0; i < 30; ++i) {
      float ms;
      check(cudaEventRecord(begin, stream));
      check(cudaGraphLaunch(exec, stream));
      check(cudaEventRecord(end, stream));
      check(cudaStreamSynchronize(stream));
      check(cudaEventElapsedTime(&ms, begin, end));
      least = std::min(least, ms);
    }
    check(cudaEventDestroy(begin));
    check(cudaEventDestroy(end));
    check(cudaStreamDestroy(stream));
    check(cudaGraphExecDestroy(exec));
    return least * 1e3;
  }

 private:
  cudaGraph_t graph_;
};

// Concurrent branches of eight kernels of one block each.
double branches(int count, bool one_after_the_other) {
  Graph graph;
  Nodes ends(count, graph.add_spin(1, {}));
  if (one_after_the_other) {
    for (auto& end : ends)
      for (int i = 0; i < 8; ++i) end = graph.add_spin(36000, {end});
  } else {
    for (int i = 0; i < 8; ++i)
      for (auto& end : ends) end = graph.add_spin(36000, {end});
  }
  graph.add_spin(1, ends);
  return graph.least_us();
}

double chain(int count) {
  Graph graph;
  cudaGraphNode_t end = graph.add_spin(1, {});
  while (--count > 0) end = graph.add_spin(1, {end});
  return graph.least_us();
}

// Levels of short kernels, `width` of them concurrent. Each is ordered after the previous one on its own lane and, with
// `neighbour`, after its neighbour's; microseconds per level.
double crossing(int width, int levels, bool neighbour) {
  Graph graph;
  Nodes ends(width, graph.add_spin(1, {}));
  for (int level = 0; level < levels; ++level) {
    Nodes next;
    for (int i = 0; i < width; ++i)
      next.push_back(graph.add_spin(
          1, neighbour && width > 1 && level > 0 ? Nodes{ends[i], ends[(i + 1) % width]} : Nodes{ends[i]}));
    ends = next;
  }
  graph.add_spin(1, ends);
  return graph.least_us() / levels;
}

// A short kernel, `width` concurrent ones after it, and one after these again; microseconds from one to the next.
double forks(int width, int times) {
  Graph graph;
  cudaGraphNode_t end = graph.add_spin(1, {});
  for (int i = 0; i < times; ++i) {
    Nodes side;
    for (int j = 0; j < width; ++j) side.push_back(graph.add_spin(1, {end}));
    end = graph.add_spin(1, side);
  }
  return graph.least_us() / times;
}

// Alternating kernels and copies of 32 KiB, with or without concurrent work; microseconds for the two.
double kernels_and_copies(int times, bool beside, bool copy) {
  char *from, *to;
  check(cudaMalloc(&from, 32768));
  check(cudaMalloc(&to, 32768));
  double us;
  {
    Graph graph;
    cudaGraphNode_t end = graph.add_spin(1, {}), other = end;
    for (int i = 0; i < times; ++i) {
      end = graph.add_spin(1, {end});
      end = copy ? graph.add_copy(to, from, 32768, {end}) : graph.add_spin(1, {end});
      if (beside) other = graph.add_spin(1, {other});
    }
    us = graph.least_us() / times;
  }
  check(cudaFree(from));
  check(cudaFree(to));
  return us;
}

// A kernel of twenty waves on the whole device, and a concurrent chain of twelve kernels of one block.
double beside_a_large_one(int multiprocessors, int priority, bool chain_first, bool patch = false) {
  Graph graph;
  cudaGraphNode_t begin = graph.add_spin(1, {}), end = begin;
  int large = multiprocessors * 32 * 20;
  if (!chain_first) graph.add_spin(18000, {begin}, large);
  for (int i = 0; i < 12; ++i) end = graph.add_spin(9000, {end}, 1, priority);
  if (chain_first) graph.add_spin(18000, {begin}, large);
  return graph.least_us(priority != 0 ? cudaGraphInstantiateFlagUseNodePriority : 0, patch ? end : nullptr, 9000);
}

// Copies of 256 MiB, each bound by memory bandwidth.
double copies(int multiprocessors, int count, bool side_by_side) {
  long n = 1 << 24;
  std::vector<float4*> memory(2 * count);
  for (float4*& each : memory) check(cudaMalloc(&each, n * sizeof(float4)));
  double us;
  {
    Graph graph;
    cudaGraphNode_t begin = graph.add_spin(1, {});
    for (int i = 0; i < count; ++i) {
      void* arguments[] = {&memory[2 * i], &memory[2 * i + 1], &n};
      cudaGraphNode_t node =
          graph.add(reinterpret_cast<void*>(stream_copy), multiprocessors * 8, 256, arguments, {begin});
      if (!side_by_side) begin = node;
    }
    us = graph.least_us();
  }
  for (float4* each : memory) check(cudaFree(each));
  return us;
}

}  // namespace

int main() {
  cudaDeviceProp device;
  int driver = 0, least = 0, greatest = 0;
  check(cudaGetDeviceProperties(&device, 0));
  check(cudaDriverGetVersion(&driver));
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  int sm = device.multiProcessorCount;
  std::printf("{\"device\": \"%s\", \"driver\": %d, \"multiprocessors\": %d, \"priorities\": [%d, %d],\n", device.name,
              driver, sm, least, greatest);
  std::printf(" \"branches\": [");
  for (int count : {1, 2, 4, 8, 16, 32, 64, 128})
    std::printf("%s\n  {\"branches\": %d, \"level_by_level_us\": %.1f, \"branch_by_branch_us\": %.1f}",
                count > 1 ? "," : "", count, branches(count, false), branches(count, true));
  std::printf("],\n \"chain_us_per_kernel\": %.3f,\n", (chain(258) - chain(2)) / 256);
  std::printf(
      " \"chain_beside_a_large_kernel\": {\"without_priorities_us\": [%.1f, %.1f], \"with_us\": [%.1f, %.1f], "
      "\"with_and_patched_us\": %.1f},\n",
      beside_a_large_one(sm, 0, false), beside_a_large_one(sm, 0, true), beside_a_large_one(sm, greatest, false),
      beside_a_large_one(sm, greatest, true), beside_a_large_one(sm, greatest, false, true));
  std::printf(" \"levels\": [");
  for (int width : {1, 2, 4, 8, 16, 32, 64})
    std::printf(
        "%s\n  {\"width\": %d, \"us_a_level\": %.2f, \"us_a_level_behind_neighbours\": %.2f, \"us_a_fork\": %.2f}",
        width > 1 ? "," : "", width, crossing(width, 40, false), crossing(width, 40, true), forks(width, 20));
  std::printf("],\n \"kernel_and_kernel_us\": [%.2f, %.2f], \"kernel_and_copy_us\": [%.2f, %.2f],\n",
              kernels_and_copies(40, false, false), kernels_and_copies(40, true, false),
              kernels_and_copies(40, false, true), kernels_and_copies(40, true, true));
  std::printf(" \"copies\": {\"one_us\": %.1f, \"two_side_by_side_us\": %.1f, \"two_in_order_us\": %.1f}}\n",
              copies(sm, 1, true), copies(sm, 2, true), copies(sm, 2, false));
  return 0;
}
