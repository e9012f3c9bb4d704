// A program whose captures allocate memory, in ways that frameworks do not have: `graph_memory WHAT` prints what it has
// computed, and the driver's answers where they matter. WHAT:
//   freed        memory of a graph is released by cuMemFree, while other memory of it is in use; launched again it is
//                there
//   freed_in_capture  the same while somebody captures: it may, or may not
//   other_graph  another graph reads and releases it, when the graph that has allocated it has gone
//   thrown       the same, but that other graph goes without a launch
//   again        it is released after a launch, the graph is launched once more, and ends: the memory is there
//   set          the stream's dependencies are set to none, and it captures another branch
//   set_planned  the same in a capture that has a plan
//   released     the last user of a primary context lets it go, and another begins
//   contexts     another context is current while the stream captures, and ends
//   two_contexts streams of two contexts are in the capture
//   failed       many captures fail: how much memory is taken in the end
//   dropped      the same, but their graphs go without a launch
//   late         memory of such captures is released when others have come
//   spoilt       what is said in a capture that an error has spoilt
//   node         a graph that the program makes itself reads it and releases it
//   destroyed    a capturing stream is destroyed: are later launches timed
//   destroyed_context  the same with its context
//   spoilt_before  a capture that an error has spoilt ends: the same
//   shown        what is shown to another process when the graph exists: is a flag seen before what it tells of
//   meanwhile    another thread releases memory, or unloads code, while graphs are analyzed
//   unloaded     other code is unloaded, then the graph's
//   reached      others may reach what the device's pool has, and so what the capture has; it is released with no
//                launch, captured again, and launched
//   elsewhere    what is learned from allocates in another context, too: what is the answer
//   refused      graphs without memory are learned from over and over, and no second capture follows
//   returned     a graph's memory is not there when it is made executable
//   threads      another thread launches all the time: how many of 8 graphs are rewritten
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"

namespace {

struct Program : GraphProgram {
  void freed() {
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
  void freed_in_capture() {
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
  void other_graph(bool launches) {
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
  void hands() {
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
  void again() {
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
  void branch(CUdeviceptr to, unsigned salt, CUdeviceptr from = 0) const {
    const CUdeviceptr a = allocate();
    launch_mix(from ? from : input, other, a, salt);
    launch_update(to, a);
    CHECK(cuMemFreeAsync(a, stream));
  }
  CUgraph capture_branches() const {
    return capture([&] {
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      const CUgraphNode* nodes = nullptr;
      std::size_t count = 0;
      branch(out[0], 1);
      CHECK(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
      std::vector<CUgraphNode> first(nodes, nodes + count);
      CHECK(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
      branch(out[1], 2);
      CHECK(
          cuStreamUpdateCaptureDependencies(stream, first.data(), nullptr, count, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    });
  }
  void set(bool planned) {
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
  void contexts() {
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
  void two_contexts() {
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
  static std::uint64_t taken_of_pool() {
    CUmemoryPool pool = nullptr;
    cuuint64_t bytes = 0;
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
  }
  void reached() {
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
  void elsewhere() const {
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
  void refused() {
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
  void leak(bool fails) const {
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
  void late() {
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
  void spoilt() const {
    CUdeviceptr a = 0;
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    allocate();
    std::printf("%d ", cuStreamQuery(stream));
    std::printf("%d ", cuMemAllocAsync(&a, kBytes, stream));
    std::printf("%d\n", cuStreamEndCapture(stream, &graph));
  }
  void node(bool any) {
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
    CHECK(cuGraphAddNode(&release_b, graph, &release, any ? &edge : nullptr, 1, &of_b));
    CUgraphExec exec = make(graph);
    run(first_exec, 1);
    end(first_exec, first);
    take_what_is_free();
    run(exec, 2);
    note(out[0]);
  }
  void destroyed(const std::string& what) {
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
  static void say(CUgraphExec exec) {
    nimble_graph_status status{};
    status.size = sizeof status;
    if (nimble_get_graph(exec, &status) == NIMBLE_SUCCESS)
      std::fprintf(stderr, "state %d: %s\n", static_cast<int>(status.state), status.text);
  }
  static void show_some_memory() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    int file = 0;
    CHECK(cuMemCreate(&handle, std::size_t{2} << 20, &properties, 0));
    CHECK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  }
  void shown() {
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
  void meanwhile() {
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
  void unloaded() {
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
  void returned() {
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
  void threads() {
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
};

// Without what the driver keeps for memory of graphs that are over.
std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  CHECK(cuDeviceGraphMemTrim(0));
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

// The last user of the primary context lets it go.
void released() {
  {
    Program program;
    CUgraph graph = program.capture([&] { program.branch(program.out[0], 1); });
    CUgraphExec exec = Program::make(graph);
    program.run(exec, 1);
    Program::end(exec, graph);
    CHECK(cuCtxSetCurrent(nullptr));
    CHECK(cuDevicePrimaryCtxRelease(0));
  }
  start_driver();
  CUdeviceptr mine[3] = {}, small[4] = {};
  for (CUdeviceptr& each : small) CHECK(cuMemAlloc(&each, kBytes));  // as the program before: the next is where its was
  for (CUdeviceptr& each : mine) CHECK(cuMemAlloc(&each, kLarge));
  for (unsigned i = 0; i < 3; ++i) CHECK(cuMemsetD32(mine[i], i + 5, kLarge / 4));
  Program again;
  Program::take_what_is_free();
  for (const CUdeviceptr each : mine) again.note(each);
  std::printf("%016llx\n", static_cast<unsigned long long>(again.digest));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string what = argv[1];
  if (what == "released") {
    released();
    return 0;
  }
  Program program;
  const std::size_t before = free_memory();
  if (what == "freed") program.freed();
  if (what == "freed_in_capture") program.freed_in_capture();
  if (what == "other_graph" || what == "thrown") program.other_graph(what == "other_graph");
  if (what == "hands") program.hands();
  if (what == "again") program.again();
  if (what == "set" || what == "set_planned") program.set(what == "set_planned");
  if (what == "contexts") program.contexts();
  if (what == "two_contexts") program.two_contexts();
  if (what == "failed" || what == "dropped") program.leak(what == "failed");
  if (what == "late") program.late();
  if (what == "spoilt") program.spoilt();
  if (what == "node") program.node(true);
  if (what == "destroyed" || what == "destroyed_context" || what == "spoilt_before") program.destroyed(what);
  if (what == "shown") program.shown();
  if (what == "meanwhile") program.meanwhile();
  if (what == "unloaded") program.unloaded();
  if (what == "reached") program.reached();
  if (what == "elsewhere") program.elsewhere();
  if (what == "refused") program.refused();
  if (what == "returned") program.returned();
  if (what == "threads") program.threads();
  std::fprintf(stderr, "%zu MiB more are taken\n", (before - free_memory()) >> 20);
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
  return 0;
}
