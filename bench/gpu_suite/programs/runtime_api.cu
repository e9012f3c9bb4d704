// A program of the CUDA runtime: one step uses most of the ways in which the runtime submits work. The suite compiles
// it twice: with the static runtime, and with the shared one.
//
// Two streams and events between them; copies from and to pinned memory, a 2D copy, a set; memory from
// cudaMallocAsync; plain, cooperative and, where the device has them, cluster launches; a graph that was captured once.
// Integers throughout: every bit of the input reaches the output.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "checked.h"
#include "stepped.h"

namespace cg = cooperative_groups;

constexpr int kBlocks = 64, kThreads = 256, kCount = kBlocks * kThreads;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

__global__ void mix(const unsigned* a, const unsigned* b, unsigned* out, int count, unsigned salt) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = (a[i] ^ (b[(i * 7 + 3) % count] + salt)) * 2246822519u + 374761393u;
}

// Every block sees what all of them wrote before the barrier.
__global__ void exchange(unsigned* data, unsigned* scratch, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = data[i] * 2654435761u;
  cg::this_grid().sync();
  data[i] = scratch[count - 1 - i] + i;
}

// Each block reads the shared memory of its neighbour in the cluster.
__global__ void neighbours(unsigned* data) {
#if __CUDA_ARCH__ >= 900
  __shared__ unsigned own[kThreads];
  const cg::cluster_group cluster = cg::this_cluster();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  own[threadIdx.x] = data[i];
  cluster.sync();
  const unsigned* other = cluster.map_shared_rank(own, (cluster.block_rank() + 1) % cluster.num_blocks());
  const unsigned value = other[kThreads - 1 - threadIdx.x];
  cluster.sync();
  data[i] = value * 3u + 1u;
#endif
}

class Program {
 public:
  Program() {
    int device = 0, major = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    clusters_ = major >= 9;
    for (cudaStream_t* stream : {&main_, &side_}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&fork_, &join_}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    for (unsigned** host : {&input_, &output_}) CHECK(cudaMallocHost(host, kBytes));
    for (unsigned** memory : {&a_, &b_, &c_, &state_}) CHECK(cudaMalloc(memory, kBytes));
    CHECK(cudaMemset(state_, 0, kBytes));
    for (int i = 0; i < kCount; ++i) input_[i] = static_cast<unsigned>(i) * 2654435761u + 12345u;
    capture();
    CHECK(cudaDeviceSynchronize());
  }

  void step() {
    ++input_[steps_++ % kCount];
    unsigned* scratch = nullptr;
    int count = kCount;
    CHECK(cudaMemcpyAsync(a_, input_, kBytes, cudaMemcpyHostToDevice, main_));
    CHECK(cudaMallocAsync(&scratch, kBytes, main_));
    CHECK(cudaMemsetAsync(scratch, 17, kBytes, main_));
    CHECK(cudaEventRecord(fork_, main_));
    CHECK(cudaStreamWaitEvent(side_, fork_, 0));
    mix<<<kBlocks, kThreads, 0, side_>>>(a_, state_, b_, kCount, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(join_, side_));
    mix<<<kBlocks, kThreads, 0, main_>>>(a_, scratch, c_, kCount, 2);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamWaitEvent(main_, join_, 0));
    void* arguments[] = {&c_, &scratch, &count};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(exchange), dim3(kBlocks), dim3(kThreads), arguments,
                                      0, main_));
    if (clusters_) launch_clusters();
    CHECK(cudaMemcpy2DAsync(scratch, 512, b_, 1024, 512, kBytes / 1024, cudaMemcpyDeviceToDevice, main_));
    mix<<<kBlocks, kThreads, 0, main_>>>(c_, scratch, state_, kCount, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaFreeAsync(scratch, main_));
    CHECK(cudaGraphLaunch(graph_, main_));
    CHECK(cudaMemcpyAsync(output_, state_, kBytes, cudaMemcpyDeviceToHost, main_));
  }

  void synchronize() { CHECK(cudaStreamSynchronize(main_)); }

  std::vector<unsigned> output() const { return {output_, output_ + kCount}; }

 private:
  void launch_clusters() {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {4, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kBlocks);
    config.blockDim = dim3(kThreads);
    config.stream = main_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, neighbours, c_));
  }

  // Two branches, so that the graph has edges to keep.
  void capture() {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork_, main_));
    CHECK(cudaStreamWaitEvent(side_, fork_, 0));
    mix<<<kBlocks, kThreads, 0, side_>>>(state_, a_, b_, kCount, 4);
    mix<<<kBlocks, kThreads, 0, main_>>>(state_, a_, c_, kCount, 5);
    CHECK(cudaEventRecord(join_, side_));
    CHECK(cudaStreamWaitEvent(main_, join_, 0));
    mix<<<kBlocks, kThreads, 0, main_>>>(c_, b_, state_, kCount, 6);
    CHECK(cudaStreamEndCapture(main_, &graph));
    CHECK(cudaGraphInstantiate(&graph_, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }

  bool clusters_ = false;
  int steps_ = 0;
  cudaStream_t main_ = nullptr, side_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  unsigned *input_ = nullptr, *output_ = nullptr;                           // pinned
  unsigned *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *state_ = nullptr;  // on the device
};

int main() {
  Program program;
  serve([&] { program.step(); }, [&] { program.synchronize(); }, [&] { return program.output(); });
  return 0;
}
