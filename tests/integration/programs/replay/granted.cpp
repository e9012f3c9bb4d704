// granted WAY WHEN STEPS SEED [KIND]: a program that lets somebody outside reach its memory or see its progress, whom
// no call of its own tells of later. On stream S each step copies its input to some data and says so by a flag. Its
// steps are calls, or, but for the input, launches of one `graph` of the program's or of one `region` of Nimble's.
//
// WAY is what lets them look, as in Program::grant(). WHEN: `first`, before the first step, and before there is a graph
// or a region; `later`, after a third of the steps, while one may be running; `ever`, they look without having been
// let. From then on they look each time that an op has run: data older than what the flag says is wrong. Steps of
// `event` that are no graphs record the event between the two; who waits for it, let or not, finds the step's data.
// Prints how often the flag was seen to change, how often the data was wrong, and what the driver said to WAY.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"
#include "tests/simcuda/simcuda.h"

namespace {

constexpr int kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr std::size_t kMapped = std::size_t{2} << 20;  // what is mapped at once
constexpr unsigned kInputs = 8;                        // that the host may be ahead
constexpr unsigned kFactor = 977;

// Who looks: device memory of the simulated driver is the host's, so it needs no call.
struct Outsider {
  std::atomic<bool> looks{false};
  const volatile unsigned *flag = nullptr, *data = nullptr;
  const void* event = nullptr;
  unsigned last = 0, records = 0;
  long seen = 0, wrong = 0;

  static void enter(void*, const char*, std::uint32_t) {}
  static void ran(void* user, std::uint32_t, int, double, double) {
    auto& outsider = *static_cast<Outsider*>(user);
    if (!outsider.looks) return;
    const unsigned flag = *outsider.flag, data = *outsider.data / kFactor;
    if (flag != outsider.last) ++outsider.seen;
    outsider.last = flag;
    if (data < flag) ++outsider.wrong;
  }
  // As one that waits for the event: each step records it once, after its data.
  static void recorded(void* user, const void* event) {
    auto& outsider = *static_cast<Outsider*>(user);
    if (event != outsider.event) return;
    if (*outsider.data / kFactor < ++outsider.records) ++outsider.wrong;
  }
};

class Program {
 public:
  Program(std::string way, const std::string& when, unsigned seed, const std::string& kind)
      : way_(std::move(way)), records_(way_ == "event" && kind != "graph"), random_(seed) {
    CHECK(cuCtxGetCurrent(&own_));
    CHECK(cuStreamCreate(&s_, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    for (CUdeviceptr* memory : {&x_, &data_, &flag_, &rest_, &number_}) {
      *memory = allocate();
      CHECK(cuMemsetD32(*memory, 0, kCount));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&in_), kInputs * kBytes));
    CHECK(cuCtxSynchronize());
    watch();
    if (when == "first") grant();
    if (when == "ever") outsider_.looks = true;
    if (kind == "graph") {
      CUgraph graph = nullptr;
      CHECK(cuStreamBeginCapture(s_, CU_STREAM_CAPTURE_MODE_GLOBAL));
      work();
      CHECK(cuStreamEndCapture(s_, &graph));
      CHECK(cuGraphInstantiate(&step_, graph, 0));
    }
    if (kind == "region" && nimble_region_begin(&region_) == NIMBLE_SUCCESS) {
      work();
      // Where others may look already, it may be refused.
      if (nimble_region_end(region_) != NIMBLE_SUCCESS || nimble_region_compile(region_) != NIMBLE_SUCCESS)
        if (when != "first") std::exit(3);
    }
  }

  void run(unsigned steps, bool later) {
    CHECK(cuCtxSynchronize());
    outsider_.event = event_;
    for (unsigned k = 1; k <= steps; ++k) {
      step(k);
      if (later && k == steps / 3) grant();
      if (chance(3) == 0 || k % kInputs == kInputs - 1) CHECK(cuStreamSynchronize(s_));
    }
    CHECK(cuCtxSynchronize());
    observe_(nullptr);
    if (records_ && outsider_.records != steps) std::exit(5);
    std::printf("seen %ld wrong %ld said %d\n", outsider_.seen, outsider_.wrong, said_);
  }

 private:
  // From 0 to n - 1.
  unsigned chance(unsigned n) {
    random_ = random_ * 1664525u + 1013904223u;
    return (random_ >> 16) % n;
  }

  // Of the kind that WAY is about.
  CUdeviceptr allocate() {
    CUdeviceptr memory = 0;
    if (way_.starts_with("map") || way_ == "export") return map();
    if (way_.starts_with("pool") && way_ != "pool_import") {
      if (!pool_) make_pool(CU_MEM_LOCATION_TYPE_DEVICE);
      CHECK(cuMemAllocFromPoolAsync(&memory, kBytes, pool_, s_));
      CHECK(cuStreamSynchronize(s_));
      return memory;
    }
    CHECK(cuMemAlloc(&memory, 2 * kPage));
    return (memory + kPage - 1) / kPage * kPage;
  }

  CUresult make_pool(CUmemLocationType type, CUmemAllocationType kind = CU_MEM_ALLOCATION_TYPE_PINNED) {
    CUmemPoolProps props{};
    props.allocType = kind;
    props.location.type = type;
    if (type == CU_MEM_LOCATION_TYPE_DEVICE && kind == CU_MEM_ALLOCATION_TYPE_PINNED)
      props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return cuMemPoolCreate(&pool_, &props);
  }

  CUdeviceptr map() {
    CUdeviceptr memory = 0;
    CHECK(cuMemAddressReserve(&memory, kMapped, 0, 0, 0));
    map_at(memory, CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK(cuMemSetAccess(memory, kMapped, &kForDevice, 1));
    return memory;
  }

  void map_at(CUdeviceptr memory, CUmemLocationType where) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = where;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK(cuMemCreate(&physical_, kMapped, &prop, 0));
    CHECK(cuMemMap(memory, kMapped, 0, physical_, 0));
  }

  // After memory of the device's own, in one range.
  CUresult let_in_host_memory() {
    CUdeviceptr memory = 0;
    CHECK(cuMemAddressReserve(&memory, 2 * kMapped, 0, 0, 0));
    map_at(memory, CU_MEM_LOCATION_TYPE_DEVICE);
    map_at(memory + kMapped, CU_MEM_LOCATION_TYPE_HOST);
    return cuMemSetAccess(memory, 2 * kMapped, &kForDevice, 1);
  }

  void watch() {
    const auto observe = reinterpret_cast<void (*)(const SimcudaObserver*)>(dlsym(RTLD_DEFAULT, "simcuda_observe"));
    if (!observe) std::exit(4);
    observe_ = observe;
    outsider_.flag = reinterpret_cast<const volatile unsigned*>(flag_);
    outsider_.data = reinterpret_cast<const volatile unsigned*>(data_);
    observer_ = {&outsider_, &Outsider::enter, &Outsider::ran, &Outsider::recorded};
    observe_(&observer_);
  }

  void grant() {
    said_ = let_look();
    outsider_.looks = true;
  }

  CUresult let_look() {
    const CUmemAccessDesc host = {{CU_MEM_LOCATION_TYPE_HOST, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int file = -1;
    unsigned long long tokens[2] = {};
    if (way_ == "ipc") {
      CUipcMemHandle handle;
      return cuIpcGetMemHandle(&handle, data_);
    }
    if (way_ == "event") {
      CUipcEventHandle handle;
      return cuIpcGetEventHandle(&handle, event_);
    }
    if (way_ == "range")
      return cuMemGetHandleForAddressRange(&file, data_, kPage, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (way_ == "tokens") return cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, data_);
    if (way_ == "all_tokens") {
      CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_P2P_TOKENS};
      unsigned type = 0;
      void* out[] = {&type, tokens};
      return cuPointerGetAttributes(2, attributes, out, data_);
    }
    if (way_ == "synchronous") {
      const unsigned yes = 1;
      return cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, data_);
    }
    if (way_ == "export")
      return cuMemExportToShareableHandle(&file, physical_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (way_ == "map_access") return cuMemSetAccess(data_, kMapped, &host, 1);
    if (way_ == "mixed_access") return let_in_host_memory();
    if (way_ == "pool_access") return cuMemPoolSetAccess(pool_, &host, 1);
    if (way_ == "pool_export") return export_pool(file);
    if (way_ == "pool_pointer") {
      CUmemPoolPtrExportData exported;
      return cuMemPoolExportPointer(&exported, data_);
    }
    if (way_ == "peer") return let_peer_look();
    return let_in();
  }

  CUresult export_pool(int& file) const {
    return cuMemPoolExportToShareableHandle(&file, pool_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }

  CUresult let_peer_look() const {
    CUcontext peer = nullptr;
    CHECK(cuCtxCreate(&peer, nullptr, 0, 0));
    const CUresult result = cuCtxEnablePeerAccess(own_, 0);
    CHECK(cuCtxSetCurrent(own_));
    return result;
  }

  // What is another's comes in; or memory that the host reaches.
  CUresult let_in() {
    CUdeviceptr memory = 0;
    if (way_ == "open") {
      CUipcMemHandle handle;
      std::fill_n(handle.reserved, sizeof handle.reserved, 0);
      handle.reserved[1] = 16;  // 4096 bytes
      return cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    }
    if (way_ == "open_event") {
      CUipcEventHandle handle;
      std::fill_n(handle.reserved, sizeof handle.reserved, 1);
      CUevent event = nullptr;
      return cuIpcOpenEventHandle(&event, handle);
    }
    if (way_ == "pool_import") {
      CUmemoryPool pool = nullptr;
      return cuMemPoolImportFromShareableHandle(&pool, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    if (way_ == "host_pool") return make_pool(CU_MEM_LOCATION_TYPE_HOST);
    if (way_ == "managed_pool") return make_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED);
    if (way_ == "hosts_pool" || way_ == "managed_hosts_pool") {
      CUmemLocation location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
      return cuMemGetDefaultMemPool(
          &pool_, &location, way_ == "hosts_pool" ? CU_MEM_ALLOCATION_TYPE_PINNED : CU_MEM_ALLOCATION_TYPE_MANAGED);
    }
    if (way_ == "node") {
      const CUmemAccessDesc host = {{CU_MEM_LOCATION_TYPE_HOST, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      CUDA_MEM_ALLOC_NODE_PARAMS params{};
      params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      params.accessDescs = &host;
      params.accessDescCount = 1;
      params.bytesize = kBytes;
      CUgraph graph = nullptr;
      CUgraphNode node = nullptr;
      CHECK(cuGraphCreate(&graph, 0));
      return cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params);
    }
    std::exit(2);
  }

  // By copies and sets alone: of them everything is known.
  void step(unsigned k) {
    unsigned* const in = in_ + k % kInputs * kCount;
    for (int i = 0; i < kCount; ++i) in[i] = k * kFactor + static_cast<unsigned>(i);
    CHECK(cuMemcpyHtoDAsync(x_, in, kBytes, s_));
    CHECK(cuMemsetD32Async(number_, k, 1, s_));
    if (step_) {
      CHECK(cuGraphLaunch(step_, s_));
    } else if (!region_ || nimble_region_launch(region_, s_) != NIMBLE_SUCCESS) {
      work();
    }
  }

  void work() {
    CHECK(cuMemcpyAsync(rest_, x_, kBytes, s_));
    CHECK(cuMemcpyAsync(data_, x_, kBytes, s_));
    if (records_) CHECK(cuEventRecord(event_, s_));
    CHECK(cuMemcpyAsync(flag_, number_, sizeof(unsigned), s_));
  }

  static constexpr std::size_t kPage = 4096;
  static constexpr CUmemAccessDesc kForDevice = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

  const std::string way_;
  const bool records_;
  unsigned random_;
  CUcontext own_ = nullptr;
  CUstream s_ = nullptr;
  CUevent event_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  CUmemGenericAllocationHandle physical_ = 0;
  CUdeviceptr x_ = 0, data_ = 0, flag_ = 0, rest_ = 0, number_ = 0;
  unsigned* in_ = nullptr;
  CUgraphExec step_ = nullptr;
  nimble_region* region_ = nullptr;
  Outsider outsider_;
  SimcudaObserver observer_{};
  void (*observe_)(const SimcudaObserver*) = nullptr;
  int said_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string when = argv[2];
  start_driver();
  Program program(argv[1], when, static_cast<unsigned>(std::atoi(argv[4])), argc > 5 ? argv[5] : "calls");
  program.run(static_cast<unsigned>(std::atoi(argv[3])), when == "later");
  return 0;
}
