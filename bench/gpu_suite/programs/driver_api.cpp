// The twin of runtime_api.cu that calls the driver itself, so that it runs on the simulated driver, too: streams,
// events, copies, sets, stream-ordered memory, launches, and a graph that was captured once. Its kernels are in an
// image beside it: driver_api.fatbin for a GPU, driver_api.simcuda for the simulated driver.
#include <cuda.h>

#include <climits>

#include "stepped.h"

namespace {

#define CHECK(call)                                                                            \
  do {                                                                                         \
    const CUresult check_result_ = (call);                                                     \
    if (check_result_ != CUDA_SUCCESS) {                                                       \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, check_result_); \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (false)

constexpr int kBlocks = 16, kThreads = 256, kCount = kBlocks * kThreads;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Program {
 public:
  Program() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    load_kernels();
    for (CUstream* stream : {&main_, &side_}) CHECK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    for (CUevent* event : {&fork_, &join_}) CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    for (unsigned** host : {&input_, &output_}) CHECK(cuMemAllocHost(reinterpret_cast<void**>(host), kBytes));
    for (CUdeviceptr* memory : {&a_, &b_, &c_, &state_}) CHECK(cuMemAlloc(memory, kBytes));
    CHECK(cuMemsetD32(state_, 0, kCount));
    CHECK(cuMemsetD32(b_, 0, kCount));
    for (int i = 0; i < kCount; ++i) input_[i] = static_cast<unsigned>(i) * 2654435761u + 12345u;
    capture();
    CHECK(cuCtxSynchronize());
  }

  void step() {
    ++input_[steps_++ % kCount];
    CUdeviceptr scratch = 0;
    CHECK(cuMemcpyHtoDAsync(a_, input_, kBytes, main_));
    CHECK(cuMemAllocAsync(&scratch, kBytes, main_));
    CHECK(cuMemsetD32Async(scratch, 17, kCount, main_));
    CHECK(cuEventRecord(fork_, main_));
    CHECK(cuStreamWaitEvent(side_, fork_, 0));
    launch(short_, a_, state_, b_, 1, side_);
    CHECK(cuEventRecord(join_, side_));
    CHECK(cuStreamWaitEvent(main_, join_, 0));
    launch(long_, a_, scratch, state_, 2, main_);
    CHECK(cuMemcpyDtoDAsync(scratch, b_, kBytes / 2, main_));
    launch(short_, state_, scratch, b_, 3, main_);
    CHECK(cuMemFreeAsync(scratch, main_));
    CHECK(cuGraphLaunch(graph_, main_));
    CHECK(cuMemcpyDtoHAsync(output_, state_, kBytes, main_));
  }

  void synchronize() { CHECK(cuStreamSynchronize(main_)); }

  std::vector<unsigned> output() const { return {output_, output_ + kCount}; }

 private:
  void load_kernels() {
    char path[PATH_MAX] = {};
    std::string folder = realpath("/proc/self/exe", path) != nullptr ? path : "";
    folder.resize(folder.rfind('/') + 1);
    CUmodule module = nullptr;
    if (cuModuleLoad(&module, (folder + "driver_api.fatbin").c_str()) != CUDA_SUCCESS)
      CHECK(cuModuleLoad(&module, (folder + "driver_api.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&short_, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&long_, module, "_Z3mixILi3EEvPKjS1_Pjij"));
  }

  static void launch(CUfunction kernel, CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt, CUstream stream) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(kernel, kBlocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr));
  }

  // Two branches, so that the graph has edges to keep.
  void capture() {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(main_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuEventRecord(fork_, main_));
    CHECK(cuStreamWaitEvent(side_, fork_, 0));
    launch(short_, state_, a_, c_, 4, side_);
    CHECK(cuEventRecord(join_, side_));
    CHECK(cuMemsetD32Async(b_, 5, kCount / 2, main_));
    CHECK(cuStreamWaitEvent(main_, join_, 0));
    launch(long_, c_, b_, state_, 6, main_);
    CHECK(cuStreamEndCapture(main_, &graph));
    CHECK(cuGraphInstantiate(&graph_, graph, 0));
    CHECK(cuGraphDestroy(graph));
  }

  int steps_ = 0;
  CUfunction short_ = nullptr, long_ = nullptr;
  CUstream main_ = nullptr, side_ = nullptr;
  CUevent fork_ = nullptr, join_ = nullptr;
  CUgraphExec graph_ = nullptr;
  unsigned *input_ = nullptr, *output_ = nullptr;  // pinned
  CUdeviceptr a_ = 0, b_ = 0, c_ = 0, state_ = 0;
};

}  // namespace

int main() {
  Program program;
  serve([&] { program.step(); }, [&] { program.synchronize(); }, [&] { return program.output(); });
  return 0;
}
