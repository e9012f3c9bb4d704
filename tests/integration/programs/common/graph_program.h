// Shared by the programs whose captures allocate memory: kernels, memory, captures, and a digest of the results.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "tests/integration/programs/common/driver.h"

inline constexpr int kCount = 256;
inline constexpr std::size_t kBytes = kCount * sizeof(unsigned), kLarge = std::size_t{8} << 20;

struct GraphProgram {
  CUcontext context = start_driver();
  CUmodule module = nullptr;
  CUfunction mix = nullptr, update = nullptr;
  CUstream stream = nullptr, second = nullptr;
  CUdeviceptr input = 0, other = 0, out[2] = {};
  std::uint64_t digest = 14695981039346656037u;

  GraphProgram() { set_up(); }
  // In the current context.
  void set_up() {
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* each : {&input, &other, &out[0], &out[1]}) *each = memory(kBytes);
    CHECK(cuCtxSynchronize());
  }

  static CUdeviceptr memory(std::size_t bytes, unsigned value = 1) {
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, bytes));
    CHECK(cuMemsetD32(pointer, value, bytes / 4));
    CHECK(cuCtxSynchronize());
    return pointer;
  }
  // What comes into the place of memory that has been given away.
  static void take_what_is_free() {
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < 4; ++i) memory(kLarge, 0xdeadbeef);
  }
  CUdeviceptr allocate(CUstream on = nullptr) const {
    CUdeviceptr pointer = 0;
    CHECK(cuMemAllocAsync(&pointer, kBytes, on ? on : stream));
    return pointer;
  }
  void launch_mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr to, unsigned salt, CUstream on = nullptr) const {
    int count = kCount;
    void* arguments[] = {&a, &b, &to, &count, &salt};
    CHECK(cuLaunchKernel(mix, 4, 1, 1, 64, 1, 1, 0, on ? on : stream, arguments, nullptr));
  }
  void launch_update(CUdeviceptr target, CUdeviceptr change, CUstream on = nullptr) const {
    int count = kCount;
    void* arguments[] = {&target, &change, &count};
    CHECK(cuLaunchKernel(update, 4, 1, 1, 64, 1, 1, 0, on ? on : stream, arguments, nullptr));
  }
  template <class Work>
  CUgraph capture(Work work, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream, mode));
    work();
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
  }
  static CUgraphExec make(CUgraph graph) {
    CUgraphExec exec = nullptr;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  void run(CUgraphExec exec, unsigned salt) const {
    std::vector<unsigned> values(kCount);
    for (int i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = salt * 31 + static_cast<unsigned>(i);
    CHECK(cuMemcpyHtoD(input, values.data(), kBytes));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
  }
  void note(CUdeviceptr from) {
    std::vector<unsigned> values(kCount);
    CHECK(cuMemcpyDtoH(values.data(), from, kBytes));
    for (const unsigned value : values) digest = (digest ^ value) * 1099511628211u;
  }
  static void end(CUgraphExec exec, CUgraph graph) {
    if (exec) CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
  }

  // Two pieces of memory that are filled separately and stay.
  CUgraph capture_two(CUdeviceptr& a, CUdeviceptr& b) const {
    return capture([&] {
      a = allocate();
      b = allocate();
      launch_mix(input, other, a, 1);
      launch_mix(input, other, b, 2);
    });
  }
};
