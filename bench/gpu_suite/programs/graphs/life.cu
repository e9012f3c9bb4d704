// CUDA graphs from creation to destruction: captured, made by hand, cloned, updated, given other parameters, with child
// and conditional nodes and with memory of their own, launched on several streams, and destroyed while they run. Usage:
// life [ROUNDS]. Prints "RESULT digest", the same in each run.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const cudaError_t error_ = (call);                                                                \
    if (error_ != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

namespace {

constexpr int kCount = 1 << 16, kBlock = 256, kGrid = kCount / kBlock, kStreams = 4, kKept = 12;

__global__ void mix(unsigned* to, const unsigned* from, unsigned salt) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned value = to[i] ^ from[i];
  for (int k = 0; k < 20; ++k) value = value * 1664525u + 1013904223u + salt;
  to[i] = value;
}

__global__ void count_down(cudaGraphConditionalHandle handle, unsigned* left) {
  if (*left > 0) --*left;
  cudaGraphSetConditional(handle, *left > 0);
}

__global__ void set_one(unsigned* word, unsigned value) { *word = value; }

struct Buffers {
  unsigned *a, *b, *c, *word;
};

// Two branches and their join, with memory of the graph's own.
cudaGraph_t capture(cudaStream_t stream, cudaStream_t side, const Buffers& on, unsigned salt, bool own_memory) {
  cudaEvent_t forked, joined;
  CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  unsigned* temporary = on.c;
  if (own_memory) CHECK(cudaMallocAsync(&temporary, kCount * sizeof(unsigned), stream));
  CHECK(cudaMemsetAsync(temporary, 7, kCount * sizeof(unsigned), stream));
  CHECK(cudaEventRecord(forked, stream));
  CHECK(cudaStreamWaitEvent(side, forked));
  mix<<<kGrid, kBlock, 0, stream>>>(on.a, temporary, salt);
  mix<<<kGrid, kBlock, 0, side>>>(on.b, temporary, salt + 1);
  CHECK(cudaEventRecord(joined, side));
  CHECK(cudaStreamWaitEvent(stream, joined));
  CHECK(cudaMemcpyAsync(on.c, on.a, kCount * sizeof(unsigned), cudaMemcpyDeviceToDevice, stream));
  mix<<<kGrid, kBlock, 0, stream>>>(on.b, on.c, salt + 2);
  if (own_memory) CHECK(cudaFreeAsync(temporary, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaEventDestroy(forked));
  CHECK(cudaEventDestroy(joined));
  return graph;
}

cudaGraphExec_t make(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

// A loop on the device: its body runs as often as the word says.
cudaGraph_t loop(const Buffers& on, unsigned salt) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t begin, whole, work, down;
  cudaKernelNodeParams first{};
  unsigned* word = on.word;
  unsigned times = 3;
  void* first_args[] = {&word, &times};
  first.func = reinterpret_cast<void*>(set_one);
  first.gridDim = first.blockDim = dim3(1);
  first.kernelParams = first_args;
  CHECK(cudaGraphAddKernelNode(&begin, graph, nullptr, 0, &first));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams conditional{};
  conditional.type = cudaGraphNodeTypeConditional;
  conditional.conditional.handle = handle;
  conditional.conditional.type = cudaGraphCondTypeWhile;
  conditional.conditional.size = 1;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddNode(&whole, graph, &begin, nullptr, 1, &conditional));
#else
  CHECK(cudaGraphAddNode(&whole, graph, &begin, 1, &conditional));
#endif
  const cudaGraph_t body = conditional.conditional.phGraph_out[0];
  cudaKernelNodeParams step{};
  unsigned* to = on.a;
  const unsigned* from = on.b;
  void* step_args[] = {&to, &from, &salt};
  step.func = reinterpret_cast<void*>(mix);
  step.gridDim = dim3(kGrid);
  step.blockDim = dim3(kBlock);
  step.kernelParams = step_args;
  CHECK(cudaGraphAddKernelNode(&work, body, nullptr, 0, &step));
  void* down_args[] = {&handle, &word};
  first.func = reinterpret_cast<void*>(count_down);
  first.kernelParams = down_args;
  CHECK(cudaGraphAddKernelNode(&down, body, &work, 1, &first));
  return graph;
}

// Gives the first kernel node of the graph another salt, in the executable graph alone.
void change_parameters(cudaGraphExec_t exec, cudaGraph_t graph, unsigned salt) {
  std::size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params;
    CHECK(cudaGraphKernelNodeGetParams(node, &params));
    void* args[] = {params.kernelParams[0], params.kernelParams[1], &salt};
    params.kernelParams = args;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
    return;
  }
}

void update(cudaGraphExec_t exec, cudaGraph_t from) {
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec, from, &info));
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 60;
  cudaStream_t streams[kStreams], side;
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  Buffers on[kStreams];
  for (Buffers& buffers : on) {
    for (unsigned** buffer : {&buffers.a, &buffers.b, &buffers.c, &buffers.word}) {
      CHECK(cudaMalloc(buffer, kCount * sizeof(unsigned)));
      CHECK(cudaMemset(*buffer, 1, kCount * sizeof(unsigned)));
    }
  }
  CHECK(cudaDeviceSynchronize());
  // Graphs that live as long as the program; some outlive the graph that they were made from.
  std::vector<cudaGraphExec_t> kept;
  for (int k = 0; k < kKept; ++k) {
    const int at = k % kStreams;
    cudaGraph_t graph = k % 3 == 2 ? loop(on[at], static_cast<unsigned>(k))
                                   : capture(streams[at], side, on[at], static_cast<unsigned>(k), false);
    kept.push_back(make(graph));
    CHECK(cudaGraphDestroy(graph));
  }
  for (unsigned round = 0; round < rounds; ++round) {
    for (int at = 0; at < kStreams; ++at) {
      const cudaStream_t stream = streams[at];
      cudaGraph_t graph = capture(stream, side, on[at], round * 16 + 1, round % 4 == 3);
      cudaGraphExec_t exec = make(graph);
      for (int k = 0; k < 3; ++k) CHECK(cudaGraphLaunch(exec, stream));
      mix<<<kGrid, kBlock, 0, stream>>>(on[at].a, on[at].b, round);
      if (round % 4 != 3) {  // a graph with memory nodes cannot be cloned, nor launched concurrently with another
        cudaGraph_t clone;
        CHECK(cudaGraphClone(&clone, graph));
        cudaGraphExec_t second = make(clone);
        CHECK(cudaGraphLaunch(second, stream));
        change_parameters(exec, graph, round + 77);
        CHECK(cudaGraphLaunch(exec, stream));
        cudaGraph_t other = capture(stream, side, on[at], round * 16 + 9, false);
        update(exec, other);
        CHECK(cudaGraphLaunch(exec, stream));
        cudaGraph_t outer;
        cudaGraphNode_t child, next;
        CHECK(cudaGraphCreate(&outer, 0));
        CHECK(cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, other));
        CHECK(cudaGraphAddChildGraphNode(&next, outer, &child, 1, clone));
        cudaGraphExec_t nested = make(outer);
        CHECK(cudaGraphLaunch(nested, stream));
        for (cudaGraph_t gone : {outer, other, clone}) CHECK(cudaGraphDestroy(gone));
        for (cudaGraphExec_t gone : {nested, second}) CHECK(cudaGraphExecDestroy(gone));  // they may still run
      }
      CHECK(cudaGraphLaunch(kept[(round * kStreams + at) % kKept / kStreams * kStreams + at], stream));
      CHECK(cudaGraphExecDestroy(exec));
      CHECK(cudaGraphDestroy(graph));
    }
    if (round % 8 == 7) CHECK(cudaDeviceSynchronize());
  }
  std::uint64_t digest = 14695981039346656037u;
  std::vector<unsigned> host(kCount);
  for (int at = 0; at < kStreams; ++at) {
    for (const unsigned* buffer : {on[at].a, on[at].b, on[at].c}) {
      CHECK(cudaMemcpyAsync(host.data(), buffer, kCount * sizeof(unsigned), cudaMemcpyDeviceToHost, streams[at]));
      CHECK(cudaStreamSynchronize(streams[at]));
      for (const unsigned value : host) digest = (digest ^ value) * 1099511628211u;
    }
  }
  for (cudaGraphExec_t exec : kept) CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaDeviceSynchronize());
  std::printf("RESULT %016llx\n", static_cast<unsigned long long>(digest));
}
