// A program whose captures allocate memory, while something ends, or does not: `graph_ends WHAT` prints what it has
// computed, and the driver's answers where they matter. WHAT:
//   null, primary  a context is to end that is none, or the primary one: two graphs' launches, and their memory
//   reset          the primary context is reset, which is not active
//   handles        another thread makes graphs and ends them: their handles are other graphs' then
//   first          a library that is loaded makes the first calls that are recorded, and many of them
//   loading        a recording begins anew all the time, while another thread loads a library that allocates memory
//   peer           memory goes with another context, and one allocation comes to lie where two pieces were
//   slots          that of another capture goes back to the driver, and comes again as one piece
//   variables      variables go with code that has none of its kernels, and one piece of memory is mapped there
//   refused        nothing but the driver keeps launches of a graph apart, and it refuses one of them
//   strays         while threads capture, they and others submit work to streams that do not; says how many of these a
//                  graph's threads did, and how many a rehearsal would have told, also of two captures
#include <dlfcn.h>

#include <atomic>
#include <string>
#include <thread>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"
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
  // Two pieces that are updated in parallel: they must not be one.
  CUgraphExec make_of(CUdeviceptr a, CUdeviceptr b) {
    return make(capture([&] {
      for (int i = 0; i < 4; ++i) {
        launch_update(a, input);
        launch_update(b, other);
      }
      launch_mix(b, other, out[1], 1);
    }));
  }
  static void say(CUgraphExec exec) {
    nimble_graph_status status{};
    status.size = sizeof status;
    if (nimble_get_graph(exec, &status) == NIMBLE_SUCCESS)
      std::fprintf(stderr, "state %d: %s\n", static_cast<int>(status.state), status.text);
  }
  // A piece of memory that holds both comes, from the driver's own hand.
  void joined(CUgraphExec exec, CUdeviceptr a, CUdeviceptr b, std::size_t bytes) {
    const CUdeviceptr both = memory(bytes, 1);
    std::fprintf(stderr, "%s\n", a - both < bytes && b - both < bytes ? "both in it" : "elsewhere");
    run(exec, 2);
    note(both + (b - both < bytes ? b - both : 0));
    note(out[1]);
    say(exec);
  }
  void peer() {
    CUcontext another = nullptr, popped = nullptr;
    CHECK(cuCtxCreate(&another, nullptr, 0, 0));
    const CUdeviceptr a = memory(kBytes), b = memory(kBytes);
    CHECK(cuCtxPopCurrent(&popped));
    CUgraphExec exec = make_of(a, b);
    run(exec, 1);
    CHECK(cuCtxDestroy(another));
    joined(exec, a, b, b - a + kBytes);
  }
  void slots() {
    CUdeviceptr a = 0, b = 0;
    CUgraph first = capture_two(a, b);
    CUgraphExec filled = make(first);
    run(filled, 1);
    CUgraphExec exec = make_of(a, b);
    run(exec, 1);
    for (const CUdeviceptr each : {a, b}) CHECK(cuMemFree(each));
    end(filled, first);
    CHECK(cuCtxSynchronize());
    joined(exec, a, b, kLarge);
  }
  void variables() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    std::size_t grain = 0;
    CHECK(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmodule code = nullptr;
    CHECK(cuModuleLoad(&code, image_path("large_variables.simcuda").c_str()));
    CUdeviceptr pages[2], pieces[2];
    for (const int i : {0, 1}) {
      CUdeviceptr variable = 0;
      std::size_t bytes = 0;
      CHECK(cuModuleGetGlobal(&variable, &bytes, code, i ? "another" : "scratch"));
      CHECK(cuMemsetD32(variable, 1, bytes / 4));
      pages[i] = (variable + grain - 1) / grain * grain;
      pieces[i] = pages[i] + 4096;
    }
    CHECK(cuCtxSynchronize());
    CUgraphExec exec = make_of(pieces[0], pieces[1]);
    run(exec, 1);
    for (const CUdeviceptr each : {pieces[0], pieces[1], out[1]}) note(each);
    CHECK(cuModuleUnload(code));
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemCreate(&handle, grain, &prop, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (const CUdeviceptr page : pages) {
      CUdeviceptr at = 0;
      CHECK(cuMemAddressReserve(&at, grain, 0, page, 0));
      if (at != page) std::exit((std::printf("there is no room where variables were\n"), 3));
      CHECK(cuMemMap(at, grain, 0, handle, 0));
      CHECK(cuMemSetAccess(at, grain, &access, 1));
    }
    CHECK(cuMemsetD32(pages[0], 1, grain / 4));
    CHECK(cuCtxSynchronize());
    for (unsigned salt = 2; salt < 6; ++salt) {
      run(exec, salt);
      for (const CUdeviceptr each : {pieces[0], out[1]}) note(each);
    }
    say(exec);
  }
  // With how much went past its capture.
  void run_once(CUgraph graph, const char* title) {
    CUgraphExec exec = make(graph);
    nimble_graph_status status{};
    status.size = sizeof status;
    if (nimble_get_graph(exec, &status) == NIMBLE_SUCCESS)
      std::fprintf(stderr, "%s %d\n", title, static_cast<int>(status.strays));
    run(exec, 1);
    end(exec, graph);
  }
  void strays() {
    const CUdeviceptr aside = memory(2 * kBytes);
    CUstream beside = nullptr;
    CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    CUevent fork = nullptr, join = nullptr;
    for (CUevent* event : {&fork, &join}) CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    const auto on_a_thread = [&](auto work) {
      std::thread([&] {
        CHECK(cuCtxSetCurrent(context));
        work();
      }).join();
    };
    const auto of = [&](auto work) {
      const auto all = [&] {
        launch_update(out[0], input);
        work();
        launch_update(out[0], out[1]);
      };
      if (nimble_rehearse_part() == NIMBLE_SUCCESS) std::fprintf(stderr, "twice\n");
      const bool rehearses = nimble_rehearse_begin(stream) == NIMBLE_SUCCESS;
      if (rehearses && nimble_rehearse_begin(stream) != NIMBLE_INVALID_ARGUMENT) std::fprintf(stderr, "twice\n");
      all();
      std::uint64_t count = 0, behind = 0;
      if (nimble_rehearse_end(&count, &behind) == NIMBLE_SUCCESS)
        std::fprintf(stderr, "rehearsed %d, behind %d\n", static_cast<int>(count), static_cast<int>(behind));
      if (rehearses && nimble_rehearse_end(nullptr, nullptr) != NIMBLE_INVALID_ARGUMENT)
        std::fprintf(stderr, "twice\n");
      CUgraph graph = capture(all, CU_STREAM_CAPTURE_MODE_RELAXED);
      run_once(graph, "strays");
    };
    launch_update(aside, input, beside);
    of([&] {  // beside it, and a part of it; and what is no work
      CHECK(cuFuncSetAttribute(update, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0));
      CHECK(cuEventRecord(fork, stream));
      CHECK(cuStreamWaitEvent(beside, fork, 0));
      launch_update(out[1], input, beside);
      CHECK(cuEventRecord(join, beside));
      CHECK(cuStreamWaitEvent(stream, join, 0));
    });
    of([&] { launch_update(aside, input, beside); });
    of([&] {
      CHECK(cuMemsetD32Async(aside, 1, 1, beside));
      CHECK(cuMemcpyDtoDAsync(aside + 4, aside, 4, beside));
      CHECK(cuMemFreeAsync(allocate(beside), beside));
    });
    // A graph that exists twice; and something that loads data, say.
    CUgraph another = capture([&] {
      for (const CUdeviceptr each : {aside, aside + kBytes}) launch_update(each, input);
    });
    CUgraphExec launched = make(another);
    of([&] { CHECK(cuGraphLaunch(launched, beside)); });
    end(launched, another);
    of([&] { on_a_thread([&] { launch_update(aside, input, beside); }); });
    of([&] {
      on_a_thread([&] {
        launch_update(aside, input, beside);
        launch_update(out[1], input);
      });
    });
    // Two captures, one after the other, after one rehearsal in parts.
    const auto in_parts = [&](auto first, auto rest) {
      nimble_rehearse_begin(stream);
      launch_update(out[0], input);
      first();
      nimble_rehearse_part();
      rest();
      launch_update(out[0], out[1]);
      std::uint64_t count = 0, behind = 0;
      if (nimble_rehearse_end(&count, &behind) == NIMBLE_SUCCESS)
        std::fprintf(stderr, "in parts: %d, behind %d\n", static_cast<int>(count), static_cast<int>(behind));
      for (const bool is_first : {true, false}) {
        CUgraph graph = capture(
            [&] {
              if (is_first) launch_update(out[0], input), first();
              if (!is_first) rest(), launch_update(out[0], out[1]);
            },
            CU_STREAM_CAPTURE_MODE_RELAXED);
        run_once(graph, "of a part");
      }
    };
    const auto beside_it = [&](bool waits) {
      if (waits) {
        CHECK(cuEventRecord(fork, stream));
        CHECK(cuStreamWaitEvent(beside, fork, 0));
      }
      launch_update(out[1], input, beside);
      CHECK(cuEventRecord(join, beside));
      if (waits) CHECK(cuStreamWaitEvent(stream, join, 0));
    };
    in_parts([&] { beside_it(true); }, [&] { beside_it(true); });
    in_parts([&] { beside_it(true); }, [&] { beside_it(false); });
    CHECK(cuCtxSynchronize());
    for (const CUdeviceptr each : {aside, out[0], out[1]}) note(each);
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

// All that is recorded is what a library does while it is loaded.
void load_first() {
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  if (!dlopen("libloading_library.so", RTLD_NOW)) std::exit((std::printf("%s\n", dlerror()), 2));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "first") load_first();
  Program program;
  if (what == "null" || what == "primary" || what == "reset") program.contexts(what);
  if (what == "handles") program.handles();
  if (what == "loading") program.loading();
  if (what == "peer") program.peer();
  if (what == "slots") program.slots();
  if (what == "variables") program.variables();
  if (what == "strays") program.strays();
  if (what == "refused") program.refused();
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
}
