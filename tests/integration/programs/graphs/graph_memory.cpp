// A program whose captures allocate memory, in ways that frameworks do not have: `graph_memory WHAT` prints what it has
// computed, and the driver's answers where they matter. WHAT:
//   freed        memory of a graph is released by cuMemFree, while other memory of it is in use; launched again it is
//                there
//   freed_in_capture  the same while somebody captures: it may, or may not
//   other_graph  another graph reads and releases it, when the graph that has allocated it has gone
//   thrown       the same, but that other graph goes without a launch
//   hands        memory of one graph is read and released by the next, again and again
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
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "tests/integration/programs/graphs/graph_memory.h"

namespace {

struct Kind {
  std::string_view name;
  void (*run)(MemoryProgram& program);
};

constexpr Kind kKinds[] = {
    {"freed", [](MemoryProgram& program) { program.freed(); }},
    {"freed_in_capture", [](MemoryProgram& program) { program.freed_in_capture(); }},
    {"other_graph", [](MemoryProgram& program) { program.other_graph(true); }},
    {"thrown", [](MemoryProgram& program) { program.other_graph(false); }},
    {"hands", [](MemoryProgram& program) { program.hands(); }},
    {"again", [](MemoryProgram& program) { program.again(); }},
    {"set", [](MemoryProgram& program) { program.set(false); }},
    {"set_planned", [](MemoryProgram& program) { program.set(true); }},
    {"contexts", [](MemoryProgram& program) { program.contexts(); }},
    {"two_contexts", [](MemoryProgram& program) { program.two_contexts(); }},
    {"failed", [](MemoryProgram& program) { program.leak(true); }},
    {"dropped", [](MemoryProgram& program) { program.leak(false); }},
    {"late", [](MemoryProgram& program) { program.late(); }},
    {"spoilt", [](MemoryProgram& program) { program.spoilt(); }},
    {"node", [](MemoryProgram& program) { program.node(); }},
    {"destroyed", [](MemoryProgram& program) { program.destroyed("destroyed"); }},
    {"destroyed_context", [](MemoryProgram& program) { program.destroyed("destroyed_context"); }},
    {"spoilt_before", [](MemoryProgram& program) { program.destroyed("spoilt_before"); }},
    {"shown", [](MemoryProgram& program) { program.shown(); }},
    {"meanwhile", [](MemoryProgram& program) { program.meanwhile(); }},
    {"unloaded", [](MemoryProgram& program) { program.unloaded(); }},
    {"reached", [](MemoryProgram& program) { program.reached(); }},
    {"elsewhere", [](MemoryProgram& program) { program.elsewhere(); }},
    {"refused", [](MemoryProgram& program) { program.refused(); }},
    {"returned", [](MemoryProgram& program) { program.returned(); }},
    {"threads", [](MemoryProgram& program) { program.threads(); }},
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
    MemoryProgram program;
    CUgraph graph = program.capture([&] { program.branch(program.out[0], 1); });
    CUgraphExec exec = MemoryProgram::make(graph);
    program.run(exec, 1);
    MemoryProgram::end(exec, graph);
    CHECK(cuCtxSetCurrent(nullptr));
    CHECK(cuDevicePrimaryCtxRelease(0));
  }
  start_driver();
  CUdeviceptr mine[3] = {}, small[4] = {};
  for (CUdeviceptr& each : small) CHECK(cuMemAlloc(&each, kBytes));  // as the program before: the next is where its was
  for (CUdeviceptr& each : mine) CHECK(cuMemAlloc(&each, kLarge));
  for (unsigned i = 0; i < 3; ++i) CHECK(cuMemsetD32(mine[i], i + 5, kLarge / 4));
  MemoryProgram again;
  MemoryProgram::take_what_is_free();
  for (const CUdeviceptr each : mine) again.note(each);
  std::printf("%016llx\n", static_cast<unsigned long long>(again.digest));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string_view what = argv[1];
  if (what == "released") {
    released();
    return 0;
  }
  for (const Kind& kind : kKinds) {
    if (kind.name != what) continue;
    MemoryProgram program;
    const std::size_t before = free_memory();
    kind.run(program);
    std::fprintf(stderr, "%zu MiB more are taken\n", (before - free_memory()) >> 20);
    std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
    return 0;
  }
  return 2;
}
