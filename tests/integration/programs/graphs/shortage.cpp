// A program for which the device's memory is just enough: it gets what it requests, as long as no one else has it.
// Prints the driver's answers, and a digest of what it computed.
//
//   shortage retired HOW   a graph with memory of its own ends, and something asks for as much: by alloc, async, create
//                          (a piece without an address), array or managed
//   shortage many GRAPHS   as many graphs, each of which needs more than its part while it runs, and keeps little
//   shortage steps COUNT   steps with memory of their own, then one piece that leaves no room for that, then steps
//   shortage retry SYMBOL  one call of that symbol fails (SIMCUDA_INJECT) where there is something to give back
//   shortage region HOW    a region (nimble.h) has memory of its own, and something asks for more than is left beside
//   it:
//                          for enough; for little, which there is; for what is hopeless; enough while work is busy that
//                          waits for this thread, while a stream captures, or while racing with another thread's
//                          launches
//
// With one more word, `cancelled`, the thread is cancelled while it asks for what is short: the driver waits nowhere.
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"

namespace {

constexpr std::size_t kMost = std::size_t{40} << 20;  // of 64 MiB
constexpr std::size_t kOfGraph = std::size_t{16} << 20;

bool g_cancelled = false;

// While it lives, cancelling is pending until something can be cancelled.
struct Cancelled {
  Cancelled() {
    if (!g_cancelled) return;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    pthread_cancel(pthread_self());
  }
  ~Cancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
};

struct Shortage : GraphProgram {
  // Two pieces of work that do not depend on each other, each in memory that the graph releases again.
  CUgraph capture_with(std::size_t bytes, CUdeviceptr* kept) const {
    return capture([&] {
      CUdeviceptr a = 0, b = 0;
      CHECK(cuMemAllocAsync(&a, bytes / 2, stream));
      CHECK(cuMemAllocAsync(&b, bytes / 2, stream));
      launch_mix(input, other, a, 1);
      launch_mix(other, input, b, 2);
      launch_mix(a, b, out[0], 3);
      if (kept) {
        *kept = allocate();
        launch_mix(a, b, *kept, 4);
      }
      CHECK(cuMemFreeAsync(a, stream));
      CHECK(cuMemFreeAsync(b, stream));
    });
  }

  void add(CUdeviceptr memory) {
    unsigned values[kCount];
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(values, memory, sizeof values));
    for (const unsigned value : values) digest = (digest ^ value) * 1099511628211u;
  }

  static CUresult ask(const std::string& how, CUstream stream) {
    const Cancelled cancelled;
    CUdeviceptr pointer = 0;
    if (how == "alloc") return cuMemAlloc(&pointer, kMost);
    if (how == "async") return cuMemAllocAsync(&pointer, kMost, stream);
    if (how == "managed") return cuMemAllocManaged(&pointer, kMost, CU_MEM_ATTACH_GLOBAL);
    if (how == "create") {
      CUmemGenericAllocationHandle handle = 0;
      CUmemAllocationProp prop{};
      prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      return cuMemCreate(&handle, kMost, &prop, 0);
    }
    CUarray array = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = kMost / 4;
    description.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    description.NumChannels = 1;
    return cuArray3DCreate(&array, &description);
  }

  void retired(const std::string& how) {
    const CUgraph graph = capture_with(kMost, nullptr);
    const CUgraphExec exec = make(graph);
    CHECK(cuGraphLaunch(exec, stream));
    add(out[0]);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    std::printf("told %d\n", ask(how, stream));
  }

  void many(int graphs) {
    std::vector<CUgraphExec> execs;
    std::vector<CUdeviceptr> kept;
    int told = 0;
    for (int i = 0; i < graphs && told == 0; ++i) {
      const CUgraph graph = capture_with(kOfGraph, &kept.emplace_back());
      CUgraphExec exec = nullptr;
      told = cuGraphInstantiateWithFlags(&exec, graph, 0);
      if (told == 0) told = cuGraphLaunch(execs.emplace_back(exec), stream);
    }
    std::printf("%zu graphs, told %d\n", execs.size(), told);
    if (told) return;
    for (const CUdeviceptr each : kept) add(each);
    for (int turn = 0; turn < 4; ++turn)
      for (std::size_t i = 0; i < execs.size(); ++i) {
        CHECK(cuMemFreeAsync(kept[i], stream));
        CHECK(cuGraphLaunch(execs[i], stream));
      }
    for (const CUdeviceptr each : kept) add(each);
    add(out[0]);
  }

  void steps(int count) {
    CUdeviceptr large = 0;
    for (int i = 0; i < count; ++i) {
      CUdeviceptr a = 0, b = 0;
      CHECK(cuMemAllocAsync(&a, kOfGraph / 2, stream));
      CHECK(cuMemAllocAsync(&b, kOfGraph / 2, stream));
      launch_mix(input, other, a, 1);
      launch_mix(other, input, b, 2);
      launch_mix(a, b, out[0], 3);
      launch_update(out[1], out[0]);
      CHECK(cuMemFreeAsync(a, stream));
      CHECK(cuMemFreeAsync(b, stream));
      CHECK(cuStreamSynchronize(stream));
      if (i % 32 == 0) add(out[1]);
      if (i % (count / 4) != count / 8) continue;
      const CUresult told = [&] {
        const Cancelled cancelled;
        return cuMemAlloc(&large, std::size_t{60} << 20);
      }();
      std::printf("told %d\n", told);
      if (told == CUDA_SUCCESS) CHECK(cuMemFree(large));
    }
    add(out[1]);
  }

  // Two pieces of work that do not depend on each other, as often as one likes.
  void piece() const {
    CUdeviceptr a = 0, b = 0;
    CHECK(cuMemAllocAsync(&a, kOfGraph, stream));
    CHECK(cuMemAllocAsync(&b, kOfGraph, stream));
    launch_mix(input, other, a, 1);
    launch_mix(other, input, b, 2);
    launch_mix(a, b, out[0], 3);
    CHECK(cuMemFreeAsync(a, stream));
    CHECK(cuMemFreeAsync(b, stream));
  }

  void region(const std::string& how) {
    nimble_region* region = nullptr;
    const bool made = nimble_region_begin(&region) == NIMBLE_SUCCESS;
    piece();
    const bool ended = made && nimble_region_end(region) == NIMBLE_SUCCESS;
    CHECK(cuStreamSynchronize(stream));  // the pool has its memory back
    if (made && (!ended || nimble_region_compile(region) != NIMBLE_SUCCESS)) std::fprintf(stderr, "no region\n");
    std::atomic<bool> asked{false};
    const auto run = [&] {
      if (nimble_region_launch(region, stream) != NIMBLE_SUCCESS) piece();
    };
    run();
    std::thread racing;
    if (how == "racing")
      racing = std::thread([&] {
        CHECK(cuCtxSetCurrent(context));
        while (made && !asked && nimble_region_launch(region, stream) == NIMBLE_SUCCESS) continue;
      });
    const CUdeviceptr flag = memory(4, 0);
    if (how == "busy") {
      CHECK(cuStreamWaitValue32(second, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
      launch_mix(input, other, out[1], 5, second);
    }
    CUgraph captured = nullptr;
    if (how == "captures") {
      CHECK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
      launch_mix(input, other, out[1], 5, second);
    }
    CUdeviceptr large = 0;
    const std::size_t bytes = how == "little" ? kOfGraph / 2 : how == "hopeless" ? 2 * kMost : kMost;
    const CUresult told = [&] {
      const Cancelled cancelled;
      return cuMemAlloc(&large, bytes);
    }();
    std::printf("told %d\n", told);
    asked = true;
    if (racing.joinable()) racing.join();
    if (how == "busy") CHECK(cuMemsetD32Async(flag, 1, 1, stream));
    if (how == "captures") {
      CHECK(cuStreamEndCapture(second, &captured));
      CHECK(cuGraphLaunch(make(captured), second));
    }
    CHECK(cuCtxSynchronize());
    if (large != 0) CHECK(cuMemFree(large));
    run();
    add(out[0]);
    add(out[1]);
    char why[200] = {};
    nimble_region_why(region, why, sizeof why);
    std::fprintf(stderr, "stale: %s\n", why);
    nimble_region_destroy(region);
  }

  // A retired graph's memory is there to be given back.
  void retry(const std::string& symbol) {
    const CUgraph graph = capture_with(kOfGraph, nullptr);
    const CUgraphExec exec = make(graph);
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    const CUgraph small = capture_with(0x4000, nullptr);
    CUgraphExec made = make(small), other_exec = nullptr;
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CUmodule loaded = nullptr;
    CUresult told = CUDA_ERROR_NOT_FOUND;
    if (symbol == "cuGraphInstantiateWithFlags") told = cuGraphInstantiateWithFlags(&other_exec, small, 0);
    if (symbol == "cuModuleLoad") told = cuModuleLoad(&loaded, image_path("programs.simcuda").c_str());
    if (symbol == "cuGraphLaunch") told = cuGraphLaunch(made, stream);
    if (symbol == "cuMemAlloc_v2") told = ask("alloc", stream);
    if (symbol == "cuLaunchKernel") {
      int count_ = kCount;
      void* arguments[] = {&out[1], &out[0], &count_};
      told = cuLaunchKernel(update, 4, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr);
    }
    std::printf("told %d\n", told);
    add(out[0]);
    add(out[1]);
  }
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  g_cancelled = count > 3 && words[3] == std::string("cancelled");
  const std::string what = words[1];
  Shortage program;
  if (what == "retired") program.retired(words[2]);
  if (what == "many") program.many(std::atoi(words[2]));
  if (what == "steps") program.steps(std::atoi(words[2]));
  if (what == "region") program.region(words[2]);
  if (what == "retry") program.retry(words[2]);
  CHECK(cuCtxSynchronize());
  std::printf("digest %016llx\n", static_cast<unsigned long long>(program.digest));
  return 0;
}
