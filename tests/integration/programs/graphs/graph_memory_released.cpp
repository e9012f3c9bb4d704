// Memory of graphs that outlives a launch: who releases it, and when.
#include "tests/integration/programs/graphs/graph_memory.h"

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

void MemoryProgram::freed() {
  CUdeviceptr a = 0, b = 0;
  CUgraph graph = capture_two(a, b);
  CUgraphExec exec = make(graph);
  for (unsigned salt = 1; salt < 4; ++salt) {
    run(exec, salt);
    CHECK(cuMemFree(a));
    std::printf("%d ", cuMemFree(a));
    take_what_is_free();
    note(b);
    CHECK(cuMemFreeAsync(b, stream));
  }
  end(exec, graph);
}

void MemoryProgram::freed_in_capture() {
  CUdeviceptr a = 0, b = 0;
  CUgraph graph = capture_two(a, b), ignored = nullptr;
  CUgraphExec exec = make(graph);
  run(exec, 1);
  for (const CUdeviceptr each : {a, b}) {
    CHECK(cuStreamBeginCapture(second, each == a ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL));
    std::printf("%d ", cuMemFree(each));
    std::printf("%d ", cuStreamEndCapture(second, &ignored));
  }
  note(b);
  CHECK(cuMemFree(b));
}

void MemoryProgram::other_graph(bool launches) {
  CUdeviceptr a = 0, b = 0;
  CUgraph first = capture_two(a, b);
  CUgraphExec first_exec = make(first);
  CUgraph then = capture([&] {
    launch_mix(a, other, out[0], 3);
    launch_mix(b, other, out[1], 3);
    CHECK(cuMemFreeAsync(a, stream));
    CHECK(cuMemFreeAsync(b, stream));
  });
  CUgraphExec exec = launches ? make(then) : nullptr;
  run(first_exec, 1);
  end(first_exec, first);
  if (!launches) end(nullptr, then);
  take_what_is_free();
  if (launches) {
    run(exec, 2);
    note(out[0]);
    note(out[1]);
    return;
  }
  note(a);
  note(b);
  CHECK(cuMemFreeAsync(a, stream));
  CHECK(cuMemFree(b));
}

void MemoryProgram::hands() {
  for (unsigned salt = 1; salt < 6; ++salt) {
    CUdeviceptr a = 0, b = 0;
    CUgraph first = capture_two(a, b);
    CUgraphExec first_exec = make(first);
    CUgraph then = capture([&] {
      launch_mix(a, b, out[0], 3);
      CHECK(cuMemFreeAsync(a, stream));
      CHECK(cuMemFreeAsync(b, stream));
    });
    CUgraphExec exec = make(then);
    run(first_exec, salt);
    run(exec, salt);
    note(out[0]);
    end(first_exec, first);
    end(exec, then);
    CHECK(cuCtxSynchronize());
  }
}

void MemoryProgram::again() {
  CUdeviceptr a = 0, b = 0;
  CUgraph graph = capture_two(a, b);
  CUgraphExec exec = make(graph);
  for (unsigned salt = 1; salt < 4; ++salt) {
    run(exec, salt);
    note(b);
    if (salt < 3) {
      CHECK(cuMemFreeAsync(a, stream));
      CHECK(cuMemFreeAsync(b, stream));
    }
  }
  end(exec, graph);
  take_what_is_free();
  note(a);
  CHECK(cuMemFree(a));
  CHECK(cuMemFree(b));
}

void MemoryProgram::leak(bool fails) const {
  for (int i = 0; i < 40; ++i) {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_mix(input, other, allocate(), 1);
    if (fails && cuStreamQuery(stream) == CUDA_SUCCESS) std::exit(3);
    if ((cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) != fails) std::exit(3);
    if (graph) CHECK(cuGraphDestroy(graph));
  }
  CHECK(cuCtxSynchronize());
}

// Releasing memory that never existed must not release anyone else's.
void MemoryProgram::late() {
  std::vector<CUdeviceptr> dead;
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr a = 0, b = 0;
    end(nullptr, capture_two(a, b));
    dead.insert(dead.end(), {a, b});
    take_what_is_free();
  }
  CUdeviceptr a = 0, b = 0;
  CUgraphExec exec = make(capture_two(a, b));
  run(exec, 1);
  for (const CUdeviceptr each : dead) (void)cuMemFreeAsync(each, stream);
  take_what_is_free();
  note(a);
  note(b);
  CHECK(cuMemFreeAsync(a, stream));
  CHECK(cuMemFreeAsync(b, stream));
}

void MemoryProgram::node() {
  CUdeviceptr a = 0, b = 0;
  CUgraph first = capture_two(a, b), graph = nullptr;
  CUgraphExec first_exec = make(first);
  CUgraphNode kernel = nullptr, release = nullptr, release_b = nullptr;
  CHECK(cuGraphCreate(&graph, 0));
  int count = kCount;
  unsigned salt = 5;
  void* arguments[] = {&a, &b, &out[0], &count, &salt};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = mix;
  params.gridDimX = 4;
  params.blockDimX = 64;
  params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  CHECK(cuGraphAddKernelNode(&kernel, graph, nullptr, 0, &params));
  CUgraphNodeParams of_b{};
  of_b.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  of_b.free.dptr = b;
  CUgraphEdgeData edge{};
  CHECK(cuGraphAddMemFreeNode(&release, graph, &kernel, 1, a));
  CHECK(cuGraphAddNode(&release_b, graph, &release, &edge, 1, &of_b));
  CUgraphExec exec = make(graph);
  run(first_exec, 1);
  end(first_exec, first);
  take_what_is_free();
  run(exec, 2);
  note(out[0]);
}
