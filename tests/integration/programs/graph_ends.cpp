// A program whose captures allocate memory, while something ends, or does not: `graph_ends WHAT` prints what it has
// computed, and what the driver said where that matters. WHAT:
//   null, primary  a context is to end that is none, or the primary one: two graphs' launches, and their memory
//   reset          the primary context is reset, which nobody has
//   handles        another thread makes graphs and ends them: their handles are other graphs' then
//   loading        a recording begins anew again and again, while another thread loads a library that allocates
//   meanwhile refused        nothing but the driver keeps launches of a graph apart, and it refuses one of them, each
//   in its turn
#include <dlfcn.h>

#include <atomic>
#include <string>
#include <thread>

#include "nimble/nimble.h"
#include "tests/integration/programs/graph_program.h"
#include "tests/simcuda/simcuda.h"

namespace {

constexpr int kGraphs = 120;
constexpr int kRefused = 18;  // launches, in which Nimble times either graph three times three times

struct Program : GraphProgram {
  CUresult end_context(const std::string& what) const {
    if (what == "reset") return cuDevicePrimaryCtxReset(0);
    return cuCtxDestroy(what == "null" ? nullptr : context);
  }
  // The context that all is in is one of the program's own, and the primary one is not there.
  void leave_primary() {
    CHECK(cuCtxSetCurrent(nullptr));
    CHECK(cuDevicePrimaryCtxRelease(0));
    CHECK(cuCtxCreate(&context, nullptr, 0, 0));
    set_up();
  }
  void contexts(const std::string& what) {
    if (what == "reset") leave_primary();
    CUgraphExec exec = make(capture([&] {
      for (int i = 0; i < 3; ++i)
        for (const CUdeviceptr to : out) launch_update(to, input);
    }));
    CHECK(cuGraphLaunch(exec, stream));
    std::printf("%d ", end_context(what));
    for (int i = 0; i < 6; ++i) CHECK(cuGraphLaunch(exec, i % 2 ? stream : second));
    CHECK(cuCtxSynchronize());
    CUdeviceptr a = 0, b = 0;
    run(make(capture_two(a, b)), 1);
    std::printf("%d ", end_context(what));
    for (const CUdeviceptr each : {out[0], out[1], a, b}) note(each);
    for (const CUdeviceptr each : {a, b}) std::printf("%d ", cuMemFreeAsync(each, stream));
  }
  void handles() {
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      CHECK(cuCtxSetCurrent(context));
      while (!stop) {
        CUgraph graph = nullptr;
        CHECK(cuGraphCreate(&graph, 0));
        CHECK(cuGraphDestroy(graph));
      }
    });
    std::vector<unsigned> values(kCount);
    for (int i = 0; i < kGraphs; ++i) {
      CUgraph graph = capture(
          [&] {
            const CUdeviceptr a = allocate();
            launch_mix(input, other, a, 1);
            launch_update(out[0], a);
            CHECK(cuMemFreeAsync(a, stream));
          },
          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      CHECK(cuCtxSynchronize());
      const CUdeviceptr mine = memory(kLarge, 7);  // the program's own, from here on
      CUgraphExec exec = make(graph);
      CHECK(cuGraphLaunch(exec, stream));
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuMemcpyDtoH(values.data(), mine, kBytes));
      for (const unsigned value : values)
        if (value != 7) std::exit((std::printf("graph %d has written into the program's memory\n", i), 3));
      CHECK(cuMemFree(mine));
      end(exec, graph);
      CHECK(cuCtxSynchronize());
    }
    stop = true;
    busy.join();
    note(out[0]);
  }
  void loading() {
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      CHECK(cuCtxSetCurrent(context));
      while (!stop) {
        void* const library = dlopen("libloading_library.so", RTLD_NOW);
        if (!library) std::exit((std::printf("%s\n", dlerror()), 2));
        dlclose(library);
      }
    });
    for (int i = 0; i < 60; ++i) {
      for (int k = 0; k < 300; ++k) launch_update(out[0], input);
      CHECK(cuStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that it is written
      nimble_learn_begin();
      nimble_learn_end();
    }
    stop = true;
    busy.join();
    note(out[0]);
  }
  void refused() {
    CUstream third = nullptr;
    CHECK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    for (int at = 0; at < kRefused; ++at) {
      const CUdeviceptr a = memory(kBytes, 3), b = memory(kBytes, 5);
      CUgraph graph = capture([&] {
        for (int i = 0; i < 6; ++i) {
          launch_update(a, input);
          launch_update(b, other);
        }
        launch_mix(a, b, out[0], 1);
        for (const CUdeviceptr to : {a, b}) launch_update(to, out[0]);
      });
      CUgraphExec exec = make(graph);
      const CUstream streams[] = {stream, second, third};
      for (int i = 0, launched = 0; launched < kRefused; ++i) {
        if (i == at) simcuda_inject("cuGraphLaunch", 1, CUDA_ERROR_OUT_OF_MEMORY);
        if (cuGraphLaunch(exec, streams[i % 3]) == CUDA_SUCCESS) ++launched;
        if (i == at) simcuda_clear_injections();
      }
      CHECK(cuCtxSynchronize());
      for (const CUdeviceptr each : {a, b, out[0]}) note(each);
      end(exec, graph);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  Program program;
  if (what == "null" || what == "primary" || what == "reset") program.contexts(what);
  if (what == "handles") program.handles();
  if (what == "loading") program.loading();
  if (what == "refused") program.refused();
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
}
