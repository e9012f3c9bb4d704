// A program that captures kernels that do more than can be observed, and launches the graph: `unseen WHAT` prints a
// digest of what all launches have computed. WHAT:
//   cleared         two kernels share a workspace that was set to zeros before, and is zeros again after each
//   cleared_inside  the same, set by a node of the graph
//   cleared_before  the same, allocated and set by another graph's nodes
//   table           a kernel follows a table of pointers that lies in memory when the graph is made executable
//   table_late      the same, but the table is put there afterwards
//   table_cleared   the same as `table`, but another graph, which is not launched, has a node that would clear it
//   table_reset     the same, but the graph clears it at its end, and the program fills it before each launch
//   table_reset_allocates  the same, and the graph begins by allocating memory
//   cache           a kernel writes to memory from before what is there while Nimble learns
//   cache_cudnn_ops the same, in memory that a library of that name has allocated for itself
//   cache_own_ops   the same, of another name
//   flag_cudnn_ops, flag_own_ops    a kernel writes to memory of the host that such a library has allocated
//   reversed        a kernel is given where its source ends
//   cooperative     two cooperative kernels
//   reserved        memory is mapped afterwards, where address space was reserved
//   again           memory was released before that, and is allocated at the same address afterwards
//   number          memory is allocated afterwards where none was before
//   captured        the same as `again`, by another capture
//   registered      host memory is registered afterwards
//   elsewhere       memory of all kinds comes and goes afterwards, which no node names
//   class_late      as `table_late`, but the kernel takes the table in a class by value
//   class_each      the same, filled before each launch
//   prepared        a kernel stores pointers in a table, which were there already whenever it was seen; the graph has
//                   a table of its own
//   one_based       a kernel is given arrays as if they began an element before their memory
//   packed          a kernel takes its pointers in a packed class
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256, kLaunches = 20;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

struct Program {
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  std::uint64_t digest = 14695981039346656037u;
  CUdeviceptr x = 0, y = 0, a = 0, b = 0, out = 0, sum = 0, other = 0;
  std::vector<unsigned> given = std::vector<unsigned>(kCount);

  Program() {
    start_driver();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuModuleLoad(&module, image_path("unseen.simcuda").c_str()));
    for (CUdeviceptr* each : {&x, &y, &a, &b, &out, &sum, &other}) *each = memory(1);
  }

  static CUdeviceptr memory(unsigned value) {
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, kBytes));
    CHECK(cuMemsetD32(pointer, value, kCount));
    CHECK(cuCtxSynchronize());
    return pointer;
  }

  template <typename... Arguments>
  void launch(const char* name, Arguments... arguments) {
    CUfunction function = nullptr;
    int count = kCount;
    CHECK(cuModuleGetFunction(&function, module, name));
    void* parameters[] = {&arguments..., &count};
    CHECK(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
  }

  void give(CUdeviceptr to, int seed) {
    for (int i = 0; i < kCount; ++i)
      given[static_cast<std::size_t>(i)] = static_cast<unsigned>(seed) * 977u + static_cast<unsigned>(i) * 31u + 7u;
    CHECK(cuMemcpyHtoDAsync(to, given.data(), kBytes, stream));
    CHECK(cuStreamSynchronize(stream));
  }

  void take(CUdeviceptr from) {
    CHECK(cuMemcpyDtoHAsync(given.data(), from, kBytes, stream));
    CHECK(cuStreamSynchronize(stream));
    for (unsigned value : given) digest = (digest ^ value) * 1099511628211u;
  }

  template <typename Work>
  CUgraphExec capture(const Work& work) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    work();
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }

  template <typename Work>
  void learn(const Work& work) {
    nimble_learn_begin();
    for (int i = 0; i < 3; ++i) {
      work();
      CHECK(cuStreamSynchronize(stream));
    }
  }

  template <typename Before>
  void run(CUgraphExec exec, std::initializer_list<CUdeviceptr> results, const Before& before) {
    for (int i = 0; i < kLaunches; ++i) {
      before();
      give(x, i);
      CHECK(cuGraphLaunch(exec, stream));
      for (CUdeviceptr result : results) take(result);
    }
    nimble_graph_status status{};
    status.size = sizeof status;
    if (nimble_get_graph(exec, &status) == NIMBLE_SUCCESS)
      std::fprintf(stderr, "state %d, %u nodes on %u streams\n", static_cast<int>(status.state), status.nodes,
                   status.streams);
  }
  void run(CUgraphExec exec, std::initializer_list<CUdeviceptr> results) {
    run(exec, results, [] {});
  }
};

void cleared(Program& p, bool inside, bool before) {
  CUdeviceptr work = before ? 0 : Program::memory(0);
  const auto sums = [&] {
    p.launch("split_sum", work, p.x, p.a);
    p.launch("split_sum", work, p.y, p.b);
    p.launch("advance", p.sum, p.a);
    p.launch("advance", p.other, p.b);
  };
  const auto clear = [&] { CHECK(cuMemsetD32Async(work, 0, kCount, p.stream)); };
  p.give(p.x, 1);
  p.give(p.y, 2);
  p.learn([&] {
    if (before) CHECK(cuMemAllocAsync(&work, kBytes, p.stream));
    if (inside || before) clear();
    sums();
    if (before) CHECK(cuMemFreeAsync(work, p.stream));
  });
  CUgraphExec first = nullptr;
  if (before)
    first = p.capture([&] {
      CHECK(cuMemAllocAsync(&work, kBytes, p.stream));
      clear();
      p.launch("advance", p.sum, p.x);
    });
  const CUgraphExec exec = p.capture([&] {
    if (inside) clear();
    sums();
  });
  nimble_learn_end();
  if (first) CHECK(cuGraphLaunch(first, p.stream));
  p.run(exec, {p.sum, p.other});
}

// As by an allocator of a framework's: eagerly the table is the block that has been there all along.
void prepared(Program& p) {
  const CUdeviceptr kept = Program::memory(0);
  struct {
    CUdeviceptr table, nothing;
  } pair;
  const auto work = [&](CUdeviceptr table) {
    pair = {table, 0};
    p.launch("scale", p.a, p.x);
    p.launch("prepare", table, p.a, p.b, p.x, p.y);
    p.launch("_Z7groupedILi5EEv4Pairi", pair);
    p.launch("advance", p.sum, p.b);
    p.launch("advance", p.other, p.y);
  };
  int seed = 40;
  p.give(p.x, seed++);
  work(kept);
  CHECK(cuStreamSynchronize(p.stream));
  p.learn([&] {
    p.give(p.x, seed++);
    work(kept);
  });
  const CUgraphExec exec = p.capture([&] {
    CUdeviceptr own = 0;
    CHECK(cuMemAllocAsync(&own, kBytes, p.stream));
    work(own);
    CHECK(cuMemFreeAsync(own, p.stream));
  });
  nimble_learn_end();
  p.run(exec, {p.sum, p.other});
}

void table(Program& p, const std::string& what) {
  CUdeviceptr table = 0, another = 0;
  CHECK(cuMemAlloc(&table, 2 * sizeof(CUdeviceptr)));
  CHECK(cuMemAlloc(&another, 2 * sizeof(CUdeviceptr)));
  CUdeviceptr both[] = {p.a, p.a};
  const auto put = [&](CUdeviceptr where) { CHECK(cuMemcpyHtoDAsync(where, both, sizeof both, p.stream)); };
  const auto clear = [&] { CHECK(cuMemsetD32Async(table, 0, 4, p.stream)); };
  const bool resets = what.starts_with("table_reset"), allocates = what == "table_reset_allocates";
  const auto work = [&](CUdeviceptr from) {
    CUdeviceptr made = 0;
    if (allocates) CHECK(cuMemAllocAsync(&made, kBytes, p.stream));
    p.launch("scale", p.a, p.x);
    p.launch("batched", from, p.out);
    p.launch("advance", p.sum, p.out);
    p.launch("advance", p.other, p.x);
    if (allocates) CHECK(cuMemFreeAsync(made, p.stream));
  };
  int seed = 40;
  p.learn([&] {
    p.give(p.x, seed++);
    put(another);
    work(another);
  });
  if (what != "table_late") put(table);
  if (what == "table_cleared")
    p.capture([&] {
      clear();
      p.launch("advance", p.out, p.x);
    });
  const CUgraphExec exec = p.capture([&] {
    work(table);
    if (resets) clear();
  });
  nimble_learn_end();
  if (what == "table_late") put(table);
  p.run(exec, {p.sum, p.other}, [&] {
    if (resets) put(table);
  });
}

// What the library of this name allocates.
CUdeviceptr memory_of(const std::string& library, const char* name = "own_memory") {
  const std::string folder = image_path("../tests/own_memory/");
  void* const loaded = dlopen((folder + "lib" + library + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const allocate = loaded ? reinterpret_cast<CUdeviceptr (*)(std::size_t)>(dlsym(loaded, name)) : nullptr;
  if (!allocate) std::fprintf(stderr, "unseen: no %s: %s\n", library.c_str(), dlerror());
  const CUdeviceptr memory = allocate ? allocate(kBytes) : 0;
  CHECK(cuMemsetD32(memory, 1, kCount));
  CHECK(cuCtxSynchronize());
  return memory;
}

void cache(Program& p, const std::string& library = {}) {
  const CUdeviceptr cache = library.empty() ? Program::memory(1) : memory_of(library);
  p.give(p.x, 5);
  const auto work = [&] {
    CUdeviceptr made = 0;
    CHECK(cuMemAllocAsync(&made, kBytes, p.stream));
    p.launch("append", made, cache, p.x);
    p.launch("advance", p.sum, made);
    p.launch("advance", p.other, cache);
    CHECK(cuMemFreeAsync(made, p.stream));
  };
  work();
  CHECK(cuStreamSynchronize(p.stream));
  p.learn(work);
  const CUgraphExec exec = p.capture(work);
  nimble_learn_end();
  const std::uint64_t without[] = {p.sum, p.other, p.x}, with[] = {p.sum, p.other, p.x, cache};
  const std::uint64_t bytes[] = {kBytes, kBytes, kBytes, kBytes};
  std::fprintf(stderr, "writes only: %d without the cache, %d with it\n",
               static_cast<int>(nimble_graph_writes_only(exec, without, bytes, 3)),
               static_cast<int>(nimble_graph_writes_only(exec, with, bytes, 4)));
  p.run(exec, {p.sum, p.other, cache});
}

void flag(Program& p, const std::string& library) {
  const CUdeviceptr flag = memory_of(library, "own_pinned_memory");
  const CUgraphExec exec = p.capture([&] {
    p.launch("_Z4fillILi3EEvPjPKji", flag, p.x);
    p.launch("_Z4fillILi3EEvPjPKji", p.sum, p.x);
  });
  const std::uint64_t ranges[] = {p.sum, flag}, bytes[] = {kBytes, kBytes};
  std::fprintf(stderr, "writes only: %d without the flag, %d with it\n",
               static_cast<int>(nimble_graph_writes_only(exec, ranges, bytes, 1)),
               static_cast<int>(nimble_graph_writes_only(exec, ranges, bytes, 2)));
  p.run(exec, {p.sum, flag});
}

void reversed(Program& p) {
  p.run(p.capture([&] {
    p.launch("_Z4fillILi3EEvPjPKji", p.a, p.x);
    p.launch("_Z8reversedILi1EEvPKjPji", p.a + kBytes, p.out);
    p.launch("_Z4fillILi3EEvPjPKji", p.sum, p.out);
    p.launch("_Z4fillILi3EEvPjPKji", p.other, p.x);
  }),
        {p.sum, p.other});
}

// The graph whose nodes name this memory, before it is there.
CUgraphExec capture_with(Program& p, CUdeviceptr memory) {
  return p.capture([&] {
    p.launch("_Z4fillILi3EEvPjPKji", memory, p.x);
    p.launch("_Z4fillILi3EEvPjPKji", p.out, memory);
    p.launch("_Z4fillILi3EEvPjPKji", p.other, p.x);
  });
}

CUmemGenericAllocationHandle map_at(CUdeviceptr address, std::size_t size) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, size, &kind, 0));
  CHECK(cuMemMap(address, size, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, size, &access, 1));
  return handle;
}

constexpr std::size_t kPage = 2 << 20;

CUdeviceptr reserve() {
  CUdeviceptr address = 0;
  CHECK(cuMemAddressReserve(&address, kPage, 0, 0, 0));
  return address;
}

void memory_later(Program& p, const std::string& what) {
  CUdeviceptr memory = 0;
  std::vector<unsigned> of_host(2 * kCount);
  if (what == "reserved") memory = reserve();
  if (what == "registered") memory = reinterpret_cast<CUdeviceptr>(of_host.data());
  if (what == "again" || what == "captured") {
    const std::size_t bytes = what == "captured" ? 4 * kPage : kPage;
    CUdeviceptr later = 0;
    CHECK(cuMemAlloc(&memory, bytes));
    CHECK(cuMemAlloc(&later, kBytes));
    CHECK(cuMemFree(memory));
    // Where memory of a capture begins, which comes in pages.
    if (what == "captured") memory = (memory + kPage - 1) / kPage * kPage;
  }
  const CUgraphExec exec = capture_with(p, memory);
  if (what == "reserved") map_at(memory, kPage);
  if (what == "registered") CHECK(cuMemHostRegister(of_host.data(), of_host.size() * sizeof(unsigned), 0));
  if (what == "again") {
    CUdeviceptr there = 0;
    CHECK(cuMemAlloc(&there, kPage));
    if (there != memory) std::fprintf(stderr, "unseen: it is elsewhere\n");
  }
  if (what == "captured") {
    CUdeviceptr there = 0;
    const CUgraphExec other = p.capture([&] {
      CHECK(cuMemAllocAsync(&there, kBytes, p.stream));
      p.launch("_Z4fillILi3EEvPjPKji", there, p.y);
      p.launch("_Z4fillILi3EEvPjPKji", p.sum, p.y);
    });
    CHECK(cuGraphLaunch(other, p.stream));
    CHECK(cuStreamSynchronize(p.stream));
    if (there != memory) {  // as without Nimble
      std::fprintf(stderr, "unseen: it is elsewhere\n");
      CHECK(cuMemAlloc(&there, 4 * kPage));
    }
  }
  p.run(exec, {p.out, p.other});
}

void number_of_memory(Program& p) {
  CUdeviceptr before = 0, last = 0, there = 0;
  CHECK(cuMemAlloc(&before, kPage));
  CHECK(cuMemAlloc(&last, kPage));
  const CUdeviceptr next = last + (last - before);  // where the driver puts the next one
  const CUgraphExec exec = p.capture([&] {
    p.launch("_Z8numberedILi3EEvPjPKjmi", p.out, p.x, next + kPage / 2);
    p.launch("_Z4fillILi3EEvPjPKji", p.other, p.x);
    p.launch("_Z4fillILi3EEvPjPKji", p.sum, p.y);
  });
  CHECK(cuMemAlloc(&there, kPage));
  if (there != next) std::fprintf(stderr, "unseen: it is elsewhere\n");
  p.run(exec, {p.out, p.other});
}

void memory_elsewhere(Program& p) {
  const CUdeviceptr scratch = Program::memory(1), reserved = reserve();
  const CUgraphExec exec = capture_with(p, scratch);
  std::vector<unsigned> of_host(kCount);
  map_at(reserved, kPage);
  CHECK(cuMemHostRegister(of_host.data(), kBytes, 0));
  p.run(exec, {p.out, p.other}, [&] {
    CUdeviceptr device = 0, ordered = 0;
    void* pinned = nullptr;
    CHECK(cuMemAlloc(&device, kPage));
    CHECK(cuMemAllocHost(&pinned, kBytes));
    CHECK(cuMemAllocAsync(&ordered, kBytes, p.stream));
    CHECK(cuMemFreeAsync(ordered, p.stream));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(device));
  });
  CHECK(cuMemHostUnregister(of_host.data()));
}

void by_class(Program& p, bool each) {
  struct Batch {
    CUdeviceptr table, out;
  };
  CUdeviceptr table = 0, another = 0;
  CHECK(cuMemAlloc(&table, sizeof table));
  CHECK(cuMemAlloc(&another, sizeof another));
  const auto put = [&](CUdeviceptr where) { CHECK(cuMemcpyHtoDAsync(where, &p.a, sizeof p.a, p.stream)); };
  const auto work = [&](CUdeviceptr from) {
    p.launch("_Z4fillILi3EEvPjPKji", p.a, p.x);
    p.launch("_Z8by_classILi7EEv5Batchi", Batch{from, p.out});
    p.launch("_Z4fillILi3EEvPjPKji", p.sum, p.out);
    p.launch("_Z4fillILi3EEvPjPKji", p.other, p.x);
  };
  int seed = 40;
  p.learn([&] {
    p.give(p.x, seed++);
    put(another);
    work(another);
  });
  const CUgraphExec exec = p.capture([&] { work(table); });
  nimble_learn_end();
  put(table);
  p.run(exec, {p.sum, p.other}, [&] {
    if (each) put(table);
  });
}

void one_based(Program& p) {
  p.run(p.capture([&] {
    p.launch("_Z4fillILi3EEvPjPKji", p.a, p.x);
    p.launch("_Z9one_basedILi5EEvPjPKji", p.out - sizeof(unsigned), p.a - sizeof(unsigned));
    p.launch("_Z4fillILi3EEvPjPKji", p.sum, p.out);
    p.launch("_Z4fillILi3EEvPjPKji", p.other, p.x);
  }),
        {p.sum, p.other});
}

void packed(Program& p) {
  struct __attribute__((packed, aligned(4))) Packed {
    int factor;
    CUdeviceptr out, in;
  };
  p.run(p.capture([&] {
    p.launch("_Z6packedILi9EEv6Packedi", Packed{3, p.a, p.x});
    p.launch("_Z6packedILi9EEv6Packedi", Packed{5, p.out, p.a});
    p.launch("_Z4fillILi3EEvPjPKji", p.other, p.x);
  }),
        {p.out, p.other});
}

void cooperative(Program& p) {
  const auto launch = [&](CUdeviceptr to) {
    CUfunction fill = nullptr;
    int count = kCount;
    CHECK(cuModuleGetFunction(&fill, p.module, "_Z4fillILi3EEvPjPKji"));
    void* parameters[] = {&to, &p.x, &count};
    CHECK(cuLaunchCooperativeKernel(fill, 4, 1, 1, 64, 1, 1, 0, p.stream, parameters));
  };
  p.run(p.capture([&] {
    launch(p.a);
    launch(p.b);
  }),
        {p.a, p.b});
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  Program program;
  if (what.starts_with("cleared")) {
    cleared(program, what == "cleared_inside", what == "cleared_before");
  } else if (what.starts_with("table")) {
    table(program, what);
  } else if (what == "cache") {
    cache(program);
  } else if (what == "reversed") {
    reversed(program);
  } else if (what == "reserved" || what == "again" || what == "captured" || what == "registered") {
    memory_later(program, what);
  } else if (what == "number") {
    number_of_memory(program);
  } else if (what.starts_with("flag_")) {
    flag(program, what.substr(5));
  } else if (what.starts_with("cache_")) {
    cache(program, what.substr(6));
  } else if (what == "elsewhere") {
    memory_elsewhere(program);
  } else if (what.starts_with("class_")) {
    by_class(program, what == "class_each");
  } else if (what == "prepared") {
    prepared(program);
  } else if (what == "one_based") {
    one_based(program);
  } else if (what == "packed") {
    packed(program);
  } else if (what == "cooperative") {
    cooperative(program);
  } else {
    std::fprintf(stderr, "unseen: what?\n");
    return 2;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
}
