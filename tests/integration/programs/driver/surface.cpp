// Programs in one: each part leads a regular step through a corner of the driver's surface.
//
//   surface PART STEPS    prints one line, the digest of what the part computed
//
// The parts are named in main(), at the end. What a part computes depends on STEPS alone, never on timing.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Part {
 public:
  explicit Part(bool non_blocking = true) {
    context_ = start_driver();
    CHECK(cuModuleLoad(&module_, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix_, module_, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module_, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&stream_, non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    for (CUdeviceptr& state : states_) state = buffer(static_cast<unsigned>(&state - states_.data()) + 3);
  }
  virtual ~Part() = default;
  virtual void step(int number) = 0;
  virtual void end() {}

  // All state of the part, at the end.
  std::uint64_t digest() {
    CHECK(cuStreamSynchronize(stream_));
    for (const CUdeviceptr state : states_) read(state);
    return digest_;
  }

 protected:
  CUdeviceptr buffer(unsigned value) {
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, kBytes));
    CHECK(cuMemsetD32(pointer, value, kCount));
    return pointer;
  }
  CUdeviceptr allocate(std::size_t bytes = kBytes) {
    CUdeviceptr tensor = 0;
    CHECK(cuMemAllocAsync(&tensor, bytes, stream_));
    return tensor;
  }
  void release(CUdeviceptr tensor) { CHECK(cuMemFreeAsync(tensor, stream_)); }

  void mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(mix_, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }
  void update(CUdeviceptr state, CUdeviceptr change) { update_on(stream_, state, change); }
  void update_on(CUstream stream, CUdeviceptr state, CUdeviceptr change) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernel(update_, kCount / 64, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
  void read(CUdeviceptr buffer) {
    CHECK(cuMemcpyDtoH(result_, buffer, kBytes));
    for (int i = 0; i < kCount; ++i) note(result_[i]);
  }
  void note(unsigned value) { digest_ = (digest_ ^ value) * 1099511628211u; }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction mix_ = nullptr, update_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, 4> states_{};
  unsigned* result_ = nullptr;
  std::uint64_t digest_ = 14695981039346656037u;
};

// Copies of layers, of rows by the call for layers, and in batches, between kernels that depend on them.
class Copies : public Part {
  void step(int number) override {
    const CUdeviceptr x = allocate(), y = allocate(), z = allocate();
    mix(states_[0], states_[1], x, static_cast<unsigned>(number));
    CHECK(cuMemsetD32Async(y, 1, kCount, stream_));
    CHECK(cuMemsetD32Async(z, 2, kCount, stream_));
    copy_layers(y, x, 2);
    copy_layers(z, y, 1);
    CUdeviceptr to[] = {states_[2], states_[3] + 64}, from[] = {x, z + 128};
    std::size_t bytes[] = {256, 512}, first = 0;
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CHECK(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream_));
    CUDA_MEMCPY3D_BATCH_OP box{};
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr = {y, 64, 4, {}};
    box.dst.op.ptr = {states_[1], 0, 0, {}};
    box.extent = {32, 3, 2};
    box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CHECK(cuMemcpy3DBatchAsync(1, &box, 0, stream_));
    update(states_[0], y);
    update(states_[3], z);
    for (const CUdeviceptr tensor : {x, y, z}) release(tensor);
  }
  void copy_layers(CUdeviceptr to, CUdeviceptr from, std::size_t depth) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcPitch = 64;
    copy.srcHeight = 4;
    copy.srcY = 1;
    copy.dstDevice = to;
    copy.dstPitch = 32;
    copy.dstHeight = 8;
    copy.WidthInBytes = 16;
    copy.Height = 3;
    copy.Depth = depth;
    CHECK(cuMemcpy3DAsync(&copy, stream_));
  }
};

// The program's own graphs: made by hand and by capture, launched, changed, updated, made again.
class Graphs : public Part {
 public:
  Graphs() {
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CUgraphNode set = nullptr, copy = nullptr;
    CUDA_MEMSET_NODE_PARAMS set_params{};
    set_params.dst = states_[2];
    set_params.elementSize = 4;
    set_params.width = 16;
    set_params.height = 1;
    set_params.value = 5;
    CHECK(cuGraphAddMemsetNode(&set, graph, nullptr, 0, &set_params, context_));
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(states_[0], states_[2]);
    CHECK(cuGraphAddKernelNode(&kernel_, graph, &set, 1, &kernel));
    CUDA_MEMCPY3D copy_params{};
    copy_params.srcMemoryType = copy_params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy_params.srcDevice = states_[0];
    copy_params.dstDevice = states_[3];
    copy_params.WidthInBytes = 128;
    copy_params.Height = copy_params.Depth = 1;
    CHECK(cuGraphAddMemcpyNode(&copy, graph, &kernel_, 1, &copy_params, context_));
    CHECK(cuGraphInstantiate(&exec_, graph, 0));
    graph_ = graph;
  }

 private:
  CUDA_KERNEL_NODE_PARAMS kernel_params(CUdeviceptr state, CUdeviceptr change) {
    first_ = state;
    second_ = change;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = update_;
    params.gridDimX = kCount / 64;
    params.blockDimX = 64;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments_;
    return params;
  }
  void step(int number) override {
    update(states_[1], states_[0]);
    CHECK(cuGraphLaunch(exec_, stream_));
    update(states_[1], states_[3]);
    mix(states_[0], states_[1], states_[2], static_cast<unsigned>(number));
    if (number == 6) {  // the graph works on other memory from now on
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(states_[1], states_[2]);
      CHECK(cuGraphExecKernelNodeSetParams(exec_, kernel_, &kernel));
    }
    if (number == 9) {  // back, as a whole
      CUgraphExecUpdateResultInfo info{};
      CHECK(cuGraphExecUpdate(exec_, graph_, &info));
    }
    if (number == 12) {
      CHECK(cuGraphExecDestroy(exec_));
      CHECK(cuGraphInstantiate(&exec_, graph_, 0));
    }
  }

  CUgraph graph_ = nullptr;
  CUgraphNode kernel_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUdeviceptr first_ = 0, second_ = 0;
  int count_ = kCount;
  void* arguments_[3] = {&first_, &second_, &count_};
};

// Launches with attributes, one of them with an event that another stream waits for.
class Attributes : public Part {
 public:
  Attributes() {
    CHECK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
  }

 private:
  void launch(CUdeviceptr state, CUdeviceptr change, CUlaunchAttribute attribute) {
    CUlaunchConfig config{};
    config.gridDimX = kCount / 64;
    config.blockDimX = 64;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernelEx(&config, update_, arguments, nullptr));
  }
  void step(int) override {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    launch(states_[0], states_[1], attribute);  // at its default: a launch as any other
    update(states_[1], states_[2]);
    attribute.value.programmaticStreamSerializationAllowed = 1;
    launch(states_[2], states_[0], attribute);
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    launch(states_[0], states_[2], attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    launch(states_[2], states_[0], attribute);
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    attribute.value.launchCompletionEvent.event = event_;
    launch(states_[0], states_[1], attribute);
    // The event says that the kernel has begun: earlier work is done.
    CHECK(cuStreamWaitEvent(other_, event_, 0));
    update_on(other_, states_[3], states_[2]);
    CHECK(cuEventRecord(done_, other_));
    CHECK(cuStreamWaitEvent(stream_, done_, 0));
  }
  CUstream other_ = nullptr;
  CUevent event_ = nullptr, done_ = nullptr;
};

// Managed memory with hints in stream order.
class Managed : public Part {
 public:
  Managed() {
    CHECK(cuMemAllocManaged(&memory_, kBytes, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemsetD32(memory_, 9, kCount));
  }

 private:
  void step(int) override {
    CUmemLocation device{};
    device.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuMemPrefetchAsync(memory_, kBytes, device, 0, stream_));
    update(memory_, states_[0]);
    std::size_t bytes = kBytes, first = 0;
    CHECK(cuMemPrefetchBatchAsync(&memory_, &bytes, 1, &device, &first, 1, 0, stream_));
    update(states_[0], memory_);
    update(states_[1], states_[2]);
    CHECK(cuStreamAttachMemAsync(stream_, memory_, 0, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemDiscardBatchAsync(&memory_, &bytes, 1, 0, stream_));
    CHECK(cuMemsetD32Async(memory_, 9, kCount, stream_));
  }
  CUdeviceptr memory_ = 0;
};

// Answers about memory that lives within the step: they must not show which block it was cut from.
class Pointers : public Part {
  void step(int) override {
    const CUdeviceptr x = allocate(), y = allocate();
    mix(states_[0], states_[1], x, 3);
    mix(states_[1], states_[2], y, 4);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, y + 8));
    CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, y + 8));
    note(base == y && size >= kBytes && size < 2 * kBytes);
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    unsigned type = 0;
    void* data[] = {&type, &size, &base};
    CHECK(cuPointerGetAttributes(3, wanted, data, x + 8));
    note(type);
    note(base == x && size >= kBytes && size < 2 * kBytes);
    update(states_[0], x);
    update(states_[1], y);
    release(x);
    release(y);
  }
};

// Settings between a step's ops, and a pool of the program's in the default one's place half way.
class Settings : public Part {
  void step(int number) override {
    const CUdeviceptr x = allocate(), y = allocate();
    mix(states_[0], states_[1], x, 3);
    mix(states_[1], states_[2], y, 4);
    if (number == 5) CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    if (number == 8) CHECK(cuFuncSetAttribute(update_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    if (number == 10) {
      CUmemPoolProps props{};
      props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      CUmemoryPool pool = nullptr;
      CHECK(cuMemPoolCreate(&pool, &props));
      CHECK(cuDeviceSetMemPool(0, pool));
    }
    update(states_[0], x);
    update(states_[1], y);
    update(states_[2], x);
    release(x);
    release(y);
  }
};

// Memory in two parts: several mappings, ended at once; from `kShared` on one that something else also reaches.
class Mappings : public Part {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;
  static constexpr int kShared = 8;

  Mappings() {
    CHECK(cuMemAddressReserve(&range_, 4 * kGranularity, 0, 0, 0));
    prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK(cuMemCreate(&handle_, kGranularity, &prop_, 0));
    CUmemGenericAllocationHandle other = 0;
    CHECK(cuMemCreate(&other, kGranularity, &prop_, 0));
    map(range_, handle_);
    map(range_ + kGranularity, other);
    CHECK(cuMemsetD32(range_, 1, kCount));
    CHECK(cuMemsetD32(range_ + kGranularity, 2, kCount));
  }

 private:
  void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
    CHECK(cuMemMap(at, kGranularity, 0, handle, 0));
    CUmemAccessDesc access{};
    access.location = prop_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(at, kGranularity, &access, 1));
  }
  void step(int number) override {
    if (number == kShared) {
      // The same memory under a second name, by way of a file, as from another process.
      int file = -1;
      CUmemGenericAllocationHandle imported = 0;
      CHECK(cuMemExportToShareableHandle(&file, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
      CHECK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
      close(file);
      alias_ = range_ + 2 * kGranularity;
      map(alias_, imported);
    }
    update(range_, states_[0]);
    update(alias_ ? alias_ : range_, states_[1]);
    update(range_ + kGranularity, range_);
    update(states_[0], range_ + kGranularity);
    update(states_[2], states_[3]);
  }
  void end() override {
    CHECK(cuStreamSynchronize(stream_));
    read(range_);
    CHECK(cuMemUnmap(range_, 2 * kGranularity));
    // Plain memory in the place of one of them.
    CUmemGenericAllocationHandle fresh = 0;
    CHECK(cuMemCreate(&fresh, kGranularity, &prop_, 0));
    map(range_ + kGranularity, fresh);
    CHECK(cuMemsetD32(range_ + kGranularity, 5, kCount));
    read(range_ + kGranularity);
  }
  CUmemAllocationProp prop_{};
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr range_ = 0, alias_ = 0;
};

// Two contexts with streams and memory; the second ends, and the primary one has more than one user.
class Contexts : public Part {
 public:
  Contexts() : Part(false) {
    CHECK(cuCtxCreate(&second_, nullptr, 0, 0));
    CHECK(cuStreamCreate(&other_, CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc(&memory_, kBytes));
    CHECK(cuMemsetD32(memory_, 4, kCount));
    CHECK(cuCtxSetCurrent(context_));
    CUcontext again = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
  }

 private:
  void step(int number) override {
    update(states_[0], states_[1]);
    update(states_[1], states_[2]);
    if (number == 4) {  // one user less: it lives on
      CHECK(cuDevicePrimaryCtxRelease(0));
    }
    if (number == 6) {
      CHECK(cuCtxSetCurrent(second_));
      CHECK(cuMemsetD32Async(memory_, 7, kCount, other_));
      CHECK(cuMemsetD32Async(memory_, 8, kCount / 2, nullptr));
      CHECK(cuCtxSynchronize());
      read(memory_);
      CHECK(cuCtxDestroy(second_));
      CHECK(cuCtxSetCurrent(context_));
    }
    update(states_[2], states_[0]);
  }
  void end() override {
    CHECK(cuStreamSynchronize(stream_));
    for (const CUdeviceptr state : states_) read(state);
    // The last user: the context ends, with its streams and its memory. A new life begins.
    CHECK(cuDevicePrimaryCtxRelease(0));
    CHECK(cuDevicePrimaryCtxRetain(&context_, 0));
    CHECK(cuCtxSetCurrent(context_));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_DEFAULT));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    for (CUdeviceptr& state : states_) state = buffer(11);
  }
  CUcontext second_ = nullptr;
  CUstream other_ = nullptr;
  CUdeviceptr memory_ = 0;
};

template <class P>
int run(int steps) {
  P part;
  CHECK(cuCtxSynchronize());  // its streams do not wait for what filled the memory
  Part& as_part = part;
  for (int i = 0; i < steps; ++i) as_part.step(i);
  as_part.end();
  std::printf("%016llx\n", static_cast<unsigned long long>(part.digest()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: surface PART STEPS\n");
    return 2;
  }
  const std::string part = argv[1];
  const int steps = std::atoi(argv[2]);
  if (part == "copies") return run<Copies>(steps);
  if (part == "graphs") return run<Graphs>(steps);
  if (part == "attributes") return run<Attributes>(steps);
  if (part == "managed") return run<Managed>(steps);
  if (part == "pointers") return run<Pointers>(steps);
  if (part == "settings") return run<Settings>(steps);
  if (part == "mappings") return run<Mappings>(steps);
  if (part == "contexts") return run<Contexts>(steps);
  std::fprintf(stderr, "no such part: %s\n", part.c_str());
  return 2;
}
