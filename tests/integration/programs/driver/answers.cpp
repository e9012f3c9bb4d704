// What the driver answers a program about its memory, in lines that are the same in each process: one for each
// different outcome, and how often it occurred.
//
//   answers step STEPS FROM EVERY THREAD   what a repeated step has allocated in stream order; asked from step FROM on,
//                                          in each EVERYth, by another thread where THREAD is 1
//   answers set STEPS FROM EVERY THREAD    the same, and has copies be synchronous as where another device reaches it
//   answers handle STEPS FROM EVERY THREAD the same as step, and asks for a handle by which another device reaches it
//   answers pool STEPS FROM EVERY THREAD   the same as step, and how much memory the device's own pool has given out
//   answers graph ROUNDS                   memory that was allocated in a capture, before and after launches
//   answers nodes ROUNDS                   how many nodes, and edges, such a graph has: a line for each round
#include <unistd.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/programs/common/graph_program.h"

namespace {

constexpr std::size_t kPage = 4096, kMapping = std::size_t{2} << 20;

CUcontext context;
CUmemoryPool by_default, own;
std::set<unsigned long long> ids;  // of all allocations so far
std::map<std::string, int> outcomes;
std::vector<std::string> order;

void outcome(const std::string& line) {
  if (outcomes[line]++ == 0) order.push_back(line);
}

std::string text(long long number) { return std::to_string(number); }

std::string known(int attribute, unsigned long long value, CUdeviceptr p) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return value == 0 ? "null" : reinterpret_cast<CUcontext>(value) == context ? "current" : "other";
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return value == p ? "the pointer" : value == 0 ? "null" : "other";
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return text(static_cast<long long>(value - p));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return value <= p ? "at or before" : "after";
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return value == 0 ? "none" : "some";
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      auto* const pool = reinterpret_cast<CUmemoryPool>(value);
      return !pool ? "null" : pool == by_default ? "default" : pool == own ? "own" : "other";
    }
    default:
      return text(static_cast<long long>(value));
  }
}

unsigned long long id_of(CUdeviceptr p) {
  unsigned long long id = 0;
  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
  return id;
}

// So many steps come before calls that would release memory of another kind: until then a replay may be binding, and
// gives up a step whose memory may be gone.
constexpr int kBound = 8;

// Calls that are for memory of other kinds: they refuse this one, and leave it as it is.
template <class Say>
void say_of_others(CUdeviceptr p, const Say& say) {
  auto* const host = reinterpret_cast<void*>(p);
  say("close", cuIpcCloseMemHandle(p));
  say("free host", cuMemFreeHost(host));
  say("unregister", cuMemHostUnregister(host));
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (const std::size_t bytes : {kMapping, 16 * kMapping}) {
    say("unmap", cuMemUnmap(p, bytes));
    say("set access", cuMemSetAccess(p, bytes, &access, 1));
  }
}

// Everything about one address, in one line.
std::string all_about(CUdeviceptr p, bool of_others = true) {
  std::string line;
  const auto say = [&](const char* what, CUresult result, const std::string& value = "") {
    line += std::string(" ") + what + "=" + (result == CUDA_SUCCESS ? value : "E" + text(result));
  };
  for (int a = 1; a <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE; ++a) {
    unsigned long long v[2] = {};
    const CUresult result = cuPointerGetAttribute(v, static_cast<CUpointer_attribute>(a), p);
    say(text(a).c_str(), result, known(a, v[0], p));
  }
  CUpointer_attribute many[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                CU_POINTER_ATTRIBUTE_BUFFER_ID,      CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                CU_POINTER_ATTRIBUTE_HOST_POINTER};
  unsigned long long v[7] = {0, 0, 0, 9, 0, 0, 0};
  void* out[] = {&v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]};
  CUresult result = cuPointerGetAttributes(7, many, out, p);
  std::string values;
  for (int i = 0; i < 7; ++i) values += known(many[i], v[i], p) + ",";
  say("many", result, values);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  result = cuMemGetAddressRange(&base, &size, p);
  say("range", result, text(static_cast<long long>(base - p)) + "+" + text(static_cast<long long>(size)));
  CUmemPoolPtrExportData exported;
  say("export", cuMemPoolExportPointer(&exported, p));
  CUmemGenericAllocationHandle handle = 0;
  say("retain", cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(p)));
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  unsigned long long flags = 9;
  result = cuMemGetAccess(&flags, &here, p);
  say("access", result, text(static_cast<long long>(flags)));
  int mostly = 0;
  say("attribute", cuMemRangeGetAttribute(&mostly, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 16));
  say("advise", cuMemAdvise(p, 16, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  CUipcMemHandle ipc;
  say("ipc", cuIpcGetMemHandle(&ipc, p), "given");
  int file = -1;  // of half a page there is none
  say("range handle",
      cuMemGetHandleForAddressRange(&file, p / kPage * kPage, kPage / 2, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  if (of_others) say_of_others(p, say);
  return line;
}

std::string set_synchronous(CUdeviceptr p, CUdeviceptr other, bool unset) {
  unsigned yes = 1, no = 0;
  unsigned now[3] = {};
  const CUresult set = cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
  cuPointerGetAttribute(&now[0], CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
  cuPointerGetAttribute(&now[1], CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other);
  const CUresult unset_result =
      unset ? cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other) : CUDA_SUCCESS;
  cuPointerGetAttribute(&now[2], CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
  return text(set) + text(unset_result) + " " + text(now[0]) + text(now[1]) + text(now[2]);
}

// A page within what is allocated there.
std::string handle(CUdeviceptr p) {
  int file = -1;
  const CUdeviceptr page = (p + kPage - 1) / kPage * kPage;
  const CUresult result = cuMemGetHandleForAddressRange(&file, page, kPage, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == CUDA_SUCCESS) close(file);
  return "E" + text(result);
}

// Whether the host has waited for a call that sets this memory and may return before that is done.
std::string waits(CUdeviceptr p) {
  const CUresult set = cuMemsetD32(p, 5, kCount);
  return text(set) + text(cuStreamQuery(CU_STREAM_LEGACY));
}

// Whether these simultaneous allocations have distinct numbers, which no earlier one had and which do not change.
std::string identity(const std::vector<CUdeviceptr>& all) {
  std::string line;
  for (const CUdeviceptr p : all) {
    const unsigned long long id = id_of(p);
    line += ids.insert(id).second ? " new" : " old";
    line += id_of(p + 8) == id ? "" : " unstable";
  }
  return line;
}

struct Step : GraphProgram {
  bool with_pool = false, sets = false, hands_out = false;
  int steps = 0, from = 0, every = 1;
  bool elsewhere = false;

  void ask(const std::function<void()>& what) const {
    if (!elsewhere) return what();
    std::thread asker([&] {
      CHECK(cuCtxSetCurrent(::context));
      what();
    });
    asker.join();
  }

  void pool(const char* when) const {
    cuuint64_t used = 0;
    CHECK(cuMemPoolGetAttribute(by_default, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    outcome(std::string(when) + " used " + text(static_cast<long long>(used)));
  }

  // What is asked disturbs no capture, though that concerns all calls of the process.
  void while_capturing() const {
    CUdeviceptr a = 0;
    CHECK(cuMemAllocAsync(&a, kBytes + 8, stream));
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ask([&] { outcome("ids while another stream captures" + identity({a})); });
    launch_mix(input, other, out[1], 9, second);
    const CUresult ended = cuStreamEndCapture(second, &graph);
    outcome("captured E" + text(ended));
    CHECK(cuMemFreeAsync(a, stream));
    CHECK(cuStreamSynchronize(stream));
    if (graph) CHECK(cuGraphDestroy(graph));
  }

  void run() {
    for (int k = 0; k < steps; ++k) {
      const bool asks = k >= from && (k - from) % every == 0;
      CUdeviceptr a = 0, b = 0;
      CHECK(cuMemAllocAsync(&a, kBytes + 8, stream));
      CHECK(cuMemAllocAsync(&b, 3 * kBytes + 2 * kPage, stream));
      if (asks) {
        ask([&] {
          if (with_pool) return pool("inside");
          outcome("ids" + identity({a, b, input}));
          CUdeviceptr there = 0;  // of memory that the last launch has not touched
          const CUresult found = cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, input + 8);
          outcome("input E" + text(found) + " at " + text(static_cast<long long>(there - input)));
          outcome("a" + all_about(a, k >= kBound));
          outcome("b inside" + all_about(b + 40, k >= kBound));
          outcome("past a" + all_about(a + kBytes + 8, k >= kBound));
          if (hands_out) outcome("handle of a page of b " + handle(b));
          if (sets && k % 2 == 0) outcome("synchronous " + set_synchronous(a, b, k % 4 != 0));
        });
      }
      launch_mix(input, other, a, 3);
      launch_mix(input, a, b, static_cast<unsigned>(5));
      launch_update(out[0], b);
      CHECK(cuMemFreeAsync(a, stream));
      if (asks && !with_pool) ask([&] { outcome("freed" + all_about(a + 4, k >= kBound)); });
      launch_update(out[1], b);
      CHECK(cuMemFreeAsync(b, stream));
      if (asks) {
        ask([&] {
          if (with_pool) return pool("after");
          outcome("both freed" + all_about(b, k >= kBound));
          outcome("b freed again E" + text(cuMemFreeAsync(b, stream)) + " E" + text(cuMemFree(b)) + " E" +
                  text(cuMemFreeAsync(b + 16, stream)));
        });
      }
      CHECK(cuStreamSynchronize(stream));
    }
    while_capturing();
    GraphProgram::note(out[0]);
    GraphProgram::note(out[1]);
    std::printf("digest %llx\n", static_cast<unsigned long long>(digest));
  }
};

void graph(int rounds) {
  GraphProgram program;
  context = program.context;
  for (int k = 0; k < rounds; ++k) {
    CUdeviceptr c = 0, d = 0;
    CUgraph made = program.capture(
        [&] {
          c = program.allocate();
          d = program.allocate();
          program.launch_mix(program.input, program.other, c, 1);
          program.launch_mix(program.input, c, d, 2);
          outcome("captured c" + all_about(c));
          outcome("captured d" + all_about(d + 8));
          CHECK(cuMemFreeAsync(c, program.stream));
          outcome("released c" + all_about(c));
        },
        CU_STREAM_CAPTURE_MODE_RELAXED);
    outcome("graph d" + all_about(d));
    CUgraphExec exec = GraphProgram::make(made);
    outcome("executable d" + all_about(d));
    program.run(exec, 7);
    outcome("launched ids" + identity({d, program.input}));
    outcome("launched c" + all_about(c));
    outcome("launched d" + all_about(d));
    outcome("launched d inside" + all_about(d + 12));
    outcome("launched d past" + all_about(d + kBytes));
    outcome("synchronous " + set_synchronous(d, program.input, k % 2 != 0));
    outcome("waits " + waits(d));
    program.note(d);
    CHECK(cuMemFreeAsync(d, program.stream));
    outcome("freed d" + all_about(d));
    outcome("freed again E" + text(cuMemFreeAsync(d, program.stream)));
    program.run(exec, 8);
    outcome("launched again ids" + identity({d}));
    outcome("launched again d" + all_about(d));
    CHECK(cuMemFree(d));
    outcome("freed d" + all_about(d));
    CHECK(cuStreamSynchronize(program.stream));
    GraphProgram::end(exec, made);
    outcome("gone d" + all_about(d));
    CHECK(cuCtxSynchronize());
  }
  std::printf("digest %llx\n", static_cast<unsigned long long>(program.digest));
}

void nodes(int rounds) {
  GraphProgram program;
  for (int k = 0; k < rounds; ++k) {
    CUdeviceptr c = 0, d = 0;
    CUgraph made = program.capture([&] {
      c = program.allocate();
      d = program.allocate();
      program.launch_mix(program.input, program.other, c, 1);
      program.launch_mix(program.input, c, d, 2);
      CHECK(cuMemFreeAsync(c, program.stream));
      program.launch_update(program.out[0], d);
      CHECK(cuMemFreeAsync(d, program.stream));
    });
    // From the first question on, graphs have the nodes that they have without Nimble.
    CUgraphNode all[64];
    std::size_t count = 64, edges = 0;
    CHECK(cuGraphGetNodes(made, all, &count));
    CHECK(cuGraphGetEdges(made, nullptr, nullptr, nullptr, &edges));
    if (k > 0) std::printf("%zu nodes, %zu edges\n", count, edges);
    CUgraphExec exec = GraphProgram::make(made);
    program.run(exec, 7);
    GraphProgram::end(exec, made);
  }
  program.note(program.out[0]);
  std::printf("digest %llx\n", static_cast<unsigned long long>(program.digest));
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 2 ? arguments[1] : "";
  if (what == "graph") {
    graph(std::atoi(arguments[2]));
  } else if (what == "nodes") {
    nodes(std::atoi(arguments[2]));
  } else if (count > 5) {
    Step step;
    context = step.context;
    CHECK(cuDeviceGetDefaultMemPool(&by_default, 0));
    step.with_pool = what == "pool";
    step.sets = what == "set";
    step.hands_out = what == "handle";
    step.steps = std::atoi(arguments[2]);
    step.from = std::atoi(arguments[3]);
    step.every = std::atoi(arguments[4]);
    step.elsewhere = std::atoi(arguments[5]) != 0;
    step.run();
  } else {
    return 2;
  }
  for (const std::string& line : order) std::printf("%d times: %s\n", outcomes[line], line.c_str());
}
