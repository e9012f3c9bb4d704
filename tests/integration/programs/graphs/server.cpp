// A server that does one kind of thing for a long time: `server WORK ROUNDS [leak|device|calm]`. Prints, for each
// eighth of the rounds, the least memory that the process had at any of the looks at it, and the most that the device
// had; with `leak` or `device` it leaks some of its own on purpose, with `calm` it stands still before each eighth's
// last look.
//
//   graphs      captures a graph that allocates, makes it executable, launches it, ends it all
//   unlaunched  the same of a graph that is never launched, and whose memory is released later
//   launches    launches kernels, and releases what it allocates
//   recordings  launches kernels, and then makes a graph
//   phases      launches kernels in another order from time to time
//   objects     makes and ends streams, events and modules, uses them, and so do contexts
//   threads     has each round done by a thread of its own
//   regions     has a region recorded, compiled and launched, and ends it
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <thread>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"

namespace {

constexpr int kLaunches = 300;  // of a round that is to fill a recording
constexpr int kPhase = 40000;   // rounds with steps of one kind

struct Server : GraphProgram {
  int round = 0;

  void work(unsigned salt) const {
    launch_mix(input, other, out[0], salt);
    launch_mix(other, input, out[1], salt + 1);
    launch_update(out[0], out[1]);
    launch_update(out[1], other);
  }

  void graphs() {
    CUdeviceptr kept = 0;
    const CUgraph graph = capture([&] {
      const CUdeviceptr a = allocate(), b = allocate();
      kept = allocate();
      launch_mix(input, other, a, 1);
      launch_mix(other, input, b, 2);
      launch_mix(a, b, kept, 3);
      CHECK(cuMemFreeAsync(a, stream));
      CHECK(cuMemFreeAsync(b, stream));
    });
    const CUgraphExec exec = make(graph);
    for (int i = 0; i < 3; ++i) {
      CHECK(cuGraphLaunch(exec, stream));
      CHECK(cuMemFreeAsync(kept, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuCtxSynchronize());
  }

  void unlaunched() {
    const CUgraph graph = capture([&] {
      const CUdeviceptr a = allocate();
      launch_mix(input, other, a, 1);
      launch_update(out[0], a);
      CHECK(cuMemFreeAsync(a, stream));
    });
    const CUgraphExec exec = make(graph);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuCtxSynchronize());
  }

  void launches() {
    const CUdeviceptr own = allocate();
    launch_mix(input, other, own, 5);
    work(7);
    launch_update(out[0], own);
    CHECK(cuMemFreeAsync(own, stream));
    if (round % 50 == 49) CHECK(cuStreamSynchronize(stream));
  }

  void recordings() {
    for (int i = 0; i < kLaunches; ++i) work(1);
    CHECK(cuStreamSynchronize(stream));
    graphs();
  }

  void phases() {
    if (round / kPhase % 2) work(1);
    launches();
    if (round % 4 == 3) CHECK(cuStreamSynchronize(stream));
  }

  void objects() {
    CUcontext own = context;
    if (round % 8 == 7) {  // what is in it ends with it
      CHECK(cuCtxCreate(&own, nullptr, 0, 0));
    }
    CUmodule code = nullptr;
    CUfunction function = nullptr;
    CUstream to = nullptr;
    CUevent event = nullptr;
    CHECK(cuModuleLoad(&code, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&function, code, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&to, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));
    CUdeviceptr target = memory(kBytes), change = memory(kBytes);
    int count = kCount;
    void* arguments[] = {&target, &change, &count};
    CHECK(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, to, arguments, nullptr));
    CHECK(cuEventRecord(event, to));
    CHECK(cuEventSynchronize(event));
    if (own != context) {
      CHECK(cuCtxDestroy(own));
      CHECK(cuCtxSetCurrent(context));
      return;
    }
    CHECK(cuMemFree(target));
    CHECK(cuMemFree(change));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(to));
    CHECK(cuModuleUnload(code));
  }

  void threads() {
    std::thread([&] {
      CHECK(cuCtxSetCurrent(context));
      launches();
      graphs();
    }).join();
  }

  void regions() {
    nimble_region* region = nullptr;
    if (nimble_region_begin(&region) != NIMBLE_SUCCESS) return work(1);
    work(1);
    if (nimble_region_end(region) == NIMBLE_SUCCESS && nimble_region_compile(region) == NIMBLE_SUCCESS)
      for (int i = 0; i < 3; ++i) nimble_region_launch(region, stream);
    CHECK(cuStreamSynchronize(stream));
    nimble_region_destroy(region);
  }
};

// Without what the allocator has free: how much that is depends on when the threads came to run.
long resident_kib() {
  malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

long device_kib() {
  std::size_t free = 0, total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  return static_cast<long>((total - free) >> 10);
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "", loses = count > 3 ? words[3] : "";
  const int rounds = count > 2 ? std::atoi(words[2]) : 8;
  const std::map<std::string, void (Server::*)()> works = {
      {"graphs", &Server::graphs},   {"unlaunched", &Server::unlaunched}, {"launches", &Server::launches},
      {"phases", &Server::phases},   {"recordings", &Server::recordings}, {"objects", &Server::objects},
      {"threads", &Server::threads}, {"regions", &Server::regions}};
  const auto work = works.find(what);
  if (work == works.end() || rounds < 8) return 2;
  Server server;
  const int look = std::max(1, rounds / 512);
  long resident = std::numeric_limits<long>::max(), device = 0;
  while (server.round < rounds) {
    (server.*work->second)();
    if (loses == "leak") std::fill_n(new char[1024], 1024, 'x');
    if (loses == "device") Server::memory(kBytes);
    ++server.round;
    const bool tell = server.round % (rounds / 8) == 0;
    if (!tell && server.round % look != 0) continue;
    if (tell && loses == "calm") std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(cuCtxSynchronize());
    resident = std::min(resident, resident_kib());  // what is on its way to a file comes and goes
    device = std::max(device, device_kib());
    if (!tell) continue;
    std::printf("round %d resident %ld KiB device %ld KiB\n", server.round, resident, device);
    std::fflush(stdout);
    resident = std::numeric_limits<long>::max();
    device = 0;
  }
  return 0;
}
