// Captures that allocate in unusual ways: on branches, in several contexts, of a pool that others reach, over and over.
#include "tests/integration/programs/graphs/graph_memory.h"

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "nimble/nimble.h"

void MemoryProgram::branch(CUdeviceptr to, unsigned salt, CUdeviceptr from) const {
  const CUdeviceptr a = allocate();
  launch_mix(from ? from : input, other, a, salt);
  launch_update(to, a);
  CHECK(cuMemFreeAsync(a, stream));
}

CUgraph MemoryProgram::capture_branches() const {
  return capture([&] {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    std::size_t count = 0;
    branch(out[0], 1);
    CHECK(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
    std::vector<CUgraphNode> first(nodes, nodes + count);
    CHECK(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    branch(out[1], 2);
    CHECK(cuStreamUpdateCaptureDependencies(stream, first.data(), nullptr, count, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  });
}

void MemoryProgram::set(bool planned) {
  if (planned) {
    nimble_learn_begin();
    CUgraph learned = capture([&] {
      branch(out[0], 1);
      branch(out[0], 2, out[0]);  // after the other one, in the same memory
      launch_update(out[1], input);
    });
    CUgraphExec exec = make(learned);
    nimble_learn_end();
    end(exec, learned);
    if (nimble_capture_again() == NIMBLE_REFUSED) std::fprintf(stderr, "nothing is known\n");
  }
  CUgraphExec exec = make(capture_branches());
  for (unsigned salt = 1; salt < 8; ++salt) {
    run(exec, salt);
    note(out[0]);
    note(out[1]);
  }
}

void MemoryProgram::contexts() {
  CUcontext third = nullptr;
  CUgraph graph = nullptr;
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuCtxCreate(&third, nullptr, 0, 0));
  const CUdeviceptr a = allocate();
  CHECK(cuCtxSetCurrent(context));
  launch_mix(input, other, a, 1);
  launch_update(out[0], a);
  CHECK(cuMemFreeAsync(a, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuCtxDestroy(third));
  CUgraphExec exec = make(graph);
  std::vector<CUdeviceptr> theirs;
  for (int i = 0; i < 4; ++i) theirs.push_back(memory(kLarge, 7));
  for (unsigned salt = 1; salt < 4; ++salt) run(exec, salt);
  note(out[0]);
  for (const CUdeviceptr each : theirs) note(each);
}

void MemoryProgram::two_contexts() {
  CUcontext third = nullptr;
  CUstream theirs = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CHECK(cuCtxCreate(&third, nullptr, 0, 0));
  CHECK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CUgraph graph = capture([&] {
    const CUdeviceptr a = allocate();
    launch_mix(input, other, a, 1);
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(theirs, fork, 0));
    const CUdeviceptr b = allocate(theirs);
    CHECK(cuMemsetD32Async(b, 7, kCount, theirs));
    CHECK(cuEventRecord(join, theirs));
    CHECK(cuStreamWaitEvent(stream, join, 0));
    launch_update(out[0], a);
    launch_update(out[0], b);
    CHECK(cuMemFreeAsync(b, stream));
    CHECK(cuMemFreeAsync(a, stream));
  });
  CUgraphExec exec = make(graph);
  for (unsigned salt = 1; salt < 4; ++salt) run(exec, salt);
  note(out[0]);
}

std::uint64_t MemoryProgram::taken_of_pool() {
  CUmemoryPool pool = nullptr;
  cuuint64_t bytes = 0;
  CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
  return bytes;
}

void MemoryProgram::reached() {
  CUmemoryPool pool = nullptr;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cuMemPoolSetAccess(pool, &access, 1));
  const std::uint64_t before = taken_of_pool();
  CUdeviceptr a = 0, b = 0;
  nimble_learn_begin();
  CUgraph graph = capture_two(a, b);
  CUgraphExec exec = make(graph);
  nimble_learn_end();
  std::fprintf(stderr, "%zu MiB of the pool, released: ", std::size_t{taken_of_pool() - before} >> 20);
  for (const CUdeviceptr each : {a, b}) std::fprintf(stderr, "%d ", cuMemFreeAsync(each, stream));
  end(exec, graph);
  nimble_capture_again();
  exec = make(graph = capture_two(a, b));
  for (unsigned salt = 1; salt < 4; ++salt) {
    run(exec, salt);
    note(a);
    note(b);
    CHECK(cuMemFreeAsync(a, stream));
    CHECK(cuMemFreeAsync(b, stream));
  }
  end(exec, graph);
  CHECK(cuCtxSynchronize());
  std::fprintf(stderr, "%zu MiB left\n", std::size_t{taken_of_pool() - before} >> 20);
}

void MemoryProgram::elsewhere() const {
  CUcontext third = nullptr;
  CUstream theirs = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr a = 0, b = 0;
  CHECK(cuCtxCreate(&third, nullptr, 0, 0));
  CHECK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  nimble_learn_begin();
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::fprintf(stderr, "here %d, ", cuMemAllocAsync(&a, kBytes, stream));
  CHECK(cuEventRecord(fork, stream));
  CHECK(cuStreamWaitEvent(theirs, fork, 0));
  std::fprintf(stderr, "elsewhere %d, ", cuMemAllocAsync(&b, kBytes, theirs));
  CHECK(cuEventRecord(join, theirs));
  CHECK(cuStreamWaitEvent(stream, join, 0));
  CHECK(cuStreamEndCapture(stream, &graph));
  std::fprintf(stderr, "released %d\n", cuMemFreeAsync(a, stream));
  CHECK(cuGraphDestroy(graph));
  nimble_learn_end();
}

void MemoryProgram::refused() {
  int full = 0;
  for (unsigned i = 0; i < 400; ++i) {
    nimble_learn_begin();
    const CUgraph graph = capture([&] {
      for (unsigned j = 0; j < 40; ++j) {
        launch_mix(input, other, out[0], j);
        launch_mix(input, other, out[1], i);
      }
    });
    const CUgraphExec exec = make(graph);
    nimble_learn_end();
    if (nimble_capture_again() == NIMBLE_SUCCESS) std::exit(3);
    nimble_graph_status status{};
    status.size = sizeof status;
    nimble_get_graph(exec, &status);
    full += std::strstr(status.text, "the recording is full") != nullptr;
    run(exec, i);
    end(exec, graph);
  }
  std::fprintf(stderr, "the recording was full for %d\n", full);
  note(out[0]);
}

void MemoryProgram::spoilt() const {
  CUdeviceptr a = 0;
  CUgraph graph = nullptr;
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  allocate();
  std::printf("%d ", cuStreamQuery(stream));
  std::printf("%d ", cuMemAllocAsync(&a, kBytes, stream));
  std::printf("%d\n", cuStreamEndCapture(stream, &graph));
}
