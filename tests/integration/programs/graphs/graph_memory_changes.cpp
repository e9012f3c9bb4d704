// What changes around a graph: streams, contexts, code and memory end, others look or work.
#include "tests/integration/programs/graphs/graph_memory.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "nimble/nimble.h"

void MemoryProgram::destroyed(const std::string& what) {
  if (what == "spoilt_before") {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_GLOBAL));
    std::printf("%d ", cuStreamSynchronize(second));
    std::printf("%d\n", cuStreamEndCapture(second, &graph));
  } else if (what == "destroyed_context") {
    CUcontext third = nullptr;
    CHECK(cuCtxCreate(&third, nullptr, 0, 0));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuCtxDestroy(third));
    CHECK(cuCtxSetCurrent(context));
  } else {
    CHECK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamDestroy(second));
  }
  CUgraphExec exec = make(capture([&] {
    for (int i = 0; i < 20; ++i) {
      launch_update(out[0], input);
      launch_update(out[1], input);
    }
  }));
  for (unsigned salt = 0; salt < 100; ++salt) run(exec, salt);
  note(out[0]);
  say(exec);
}

void MemoryProgram::say(CUgraphExec exec) {
  nimble_graph_status status{};
  status.size = sizeof status;
  if (nimble_get_graph(exec, &status) == NIMBLE_SUCCESS)
    std::fprintf(stderr, "state %d: %s\n", static_cast<int>(status.state), status.text);
}

void MemoryProgram::show_some_memory() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  int file = 0;
  CHECK(cuMemCreate(&handle, std::size_t{2} << 20, &properties, 0));
  CHECK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

void MemoryProgram::shown() {
  CUgraphExec exec = make(capture([&] {
    launch_mix(input, other, out[0], 1);
    CHECK(cuMemsetD32Async(out[1], 1, 1, stream));
  }));
  show_some_memory();
  const CUdeviceptr seen = memory(kBytes);
  bool early = false;
  for (int i = 0; i < 40; ++i) {
    for (const CUdeviceptr each : {out[0], out[1]}) CHECK(cuMemsetD32(each, 0, kCount));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphLaunch(exec, stream));
    // An observer, which reads the flag, and then the data that it announces.
    CHECK(cuMemcpyDtoDAsync(seen, out[1], 4, second));
    CHECK(cuMemcpyDtoDAsync(seen + 4, out[0], 4, second));
    CHECK(cuCtxSynchronize());
    unsigned values[2] = {};
    CHECK(cuMemcpyDtoH(values, seen, sizeof values));
    early |= values[0] == 1 && values[1] == 0;
  }
  std::printf("the flag was seen early: %d\n", early);
}

// What the other thread does concerns each graph that this one makes executable.
void MemoryProgram::meanwhile() {
  for (int i = 0; i < 16; ++i) {
    CUmodule code = nullptr;
    CHECK(cuModuleLoad(&code, image_path("programs.simcuda").c_str()));
    CUdeviceptr pieces[3] = {};
    for (CUdeviceptr& each : pieces) each = memory(kBytes);
    CHECK(cuModuleGetFunction(&update, code, "_Z6updateILi1EEvPjPKji"));
    CUgraph graph = capture([&] {
      for (int k = 0; k < 60; ++k) {
        launch_update(pieces[0], input);
        launch_update(pieces[1], input);
      }
    });
    std::atomic<int> at{0};
    std::thread thread([&] {
      CHECK(cuCtxSetCurrent(context));
      at = 1;
      while (at != 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + 4 * i));
      CHECK(i % 2 != 0 ? cuModuleUnload(code) : cuMemFree(pieces[0]));
      if (i % 2 != 0) return;
      CHECK(cuMemFree(pieces[1]));
      CUdeviceptr both = 0;
      CHECK(cuMemAlloc(&both, pieces[1] - pieces[0] + kBytes));
      if (both != pieces[0]) std::fprintf(stderr, "another address\n");
    });
    while (at != 1) std::this_thread::yield();
    at = 2;
    CUgraphExec exec = make(graph);
    thread.join();
    say(exec);
    end(exec, graph);
  }
}

void MemoryProgram::unloaded() {
  CUgraph graph = capture([&] {
    launch_mix(input, other, out[0], 1);
    launch_mix(input, other, out[1], 2);
  });
  CUgraphExec exec = make(graph);
  run(exec, 1);
  CUmodule others = nullptr;
  CUfunction advance = nullptr;
  CHECK(cuModuleLoad(&others, image_path("opaque.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&advance, others, "advance"));
  CHECK(cuModuleUnload(others));
  run(exec, 2);
  for (const CUdeviceptr each : out) note(each);
  say(exec);
  CHECK(cuModuleUnload(module));
  say(exec);
  end(exec, graph);
}

// Its memory is released before it is instantiated, and allocated again before it is launched.
void MemoryProgram::returned() {
  const CUdeviceptr a = memory(kBytes), b = memory(kBytes);
  CUgraph graph = capture([&] {
    for (int i = 0; i < 3; ++i) {
      launch_update(a, input);
      launch_update(b, a);
    }
  });
  CHECK(cuMemFree(a));
  CHECK(cuMemFree(b));
  CUgraphExec exec = make(graph);
  for (const CUdeviceptr each : {a, b})
    if (memory(kBytes) != each) std::exit(3);
  for (unsigned salt = 1; salt < 5; ++salt) {
    run(exec, salt);
    note(a);
    note(b);
  }
  CHECK(cuGraphExecDestroy(exec));
  exec = make(graph);  // when all of it is there
  run(exec, 7);
  note(b);
}

void MemoryProgram::threads() {
  std::atomic<bool> stop{false};
  const CUdeviceptr mine = memory(kBytes), theirs = memory(kBytes);
  std::thread thread([&] {
    CHECK(cuCtxSetCurrent(context));
    for (int n = 1; !stop; ++n) {
      launch_update(mine, theirs, second);
      if (n % 64 == 0) CHECK(cuStreamSynchronize(second));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  int rewritten = 0;
  for (int i = 0; i < 8; ++i) {
    CUgraph graph = capture(
        [&] {
          for (int k = 0; k < 40; ++k) {
            launch_update(out[0], input);
            launch_update(out[1], input);
          }
        },
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUgraphExec exec = make(graph);
    nimble_graph_status status{};
    status.size = sizeof status;
    if (nimble_get_graph(exec, &status) == NIMBLE_SUCCESS) rewritten += status.state != NIMBLE_GRAPH_KEPT;
  }
  stop = true;
  thread.join();
  std::fprintf(stderr, "%d of 8 are rewritten\n", rewritten);
}
