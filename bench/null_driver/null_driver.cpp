// A libcuda.so.1 that does nothing, as fast as can be, and without a lock: what Nimble costs shows on it undiluted, and
// so does every lock and every shared cache line of Nimble's own. For bench/thread_overhead.cpp, which checks no
// result.
//
// Every call succeeds. Handles are numbers that never come back; all functions have the parameters of the benchmark's
// kernels. It has what that program and Nimble's modes call, and nothing else.
#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>

// The functions that only succeed, by the names that cuda.h maps to their newest versions.
// clang-format off
#define SUCCEED(name, ...) CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }
// clang-format on

struct CUfunc_st {
  std::string name;
};

namespace {

// (float*, const float*, float)
constexpr struct { std::size_t offset, size; } kParams[] = {{0, 8}, {8, 8}, {16, 4}};

std::uint64_t number(std::uint64_t distance) {
  static std::atomic<std::uint64_t> next{std::uint64_t{1} << 32};
  return next.fetch_add((distance + 255) / 256 * 256, std::memory_order_relaxed);
}

template <class Handle>
CUresult make(Handle* out) {
  *out = reinterpret_cast<Handle>(number(256));
  return CUDA_SUCCESS;
}

const CUcontext kContext = reinterpret_cast<CUcontext>(0x100);

}  // namespace

extern "C" {

// Set-up.
SUCCEED(cuInit, unsigned)
SUCCEED(cuCtxSetCurrent, CUcontext)
SUCCEED(cuCtxPushCurrent, CUcontext)
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "null driver");
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = kContext, CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = kContext, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext* context) { return *context = kContext, CUDA_SUCCESS; }
CUresult cuModuleLoad(CUmodule* module, const char*) { return make(module); }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  // Live as long as the process; not a call whose time is taken.
  static std::mutex mutex;
  static auto& functions = *new std::deque<CUfunc_st>;
  const std::lock_guard lock(mutex);
  return *function = &functions.emplace_back(CUfunc_st{name}), CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** name, CUfunction function) { return *name = function->name.c_str(), CUDA_SUCCESS; }
CUresult cuFuncGetParamInfo(CUfunction, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (index >= std::size(kParams)) return CUDA_ERROR_INVALID_VALUE;
  *offset = kParams[index].offset;
  *size = kParams[index].size;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) { return make(stream); }
CUresult cuStreamGetFlags(CUstream, unsigned* flags) { return *flags = CU_STREAM_NON_BLOCKING, CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) { return *pointer = number(bytes), CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* event, unsigned) { return make(event); }
SUCCEED(cuEventDestroy, CUevent)

// What the program does in each step.
SUCCEED(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
        void**, void**)
SUCCEED(cuStreamSynchronize, CUstream)

// What replay may call.
SUCCEED(cuEventRecord, CUevent, CUstream)
SUCCEED(cuStreamWaitEvent, CUstream, CUevent, unsigned)
SUCCEED(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, std::size_t, CUstream)
SUCCEED(cuMemcpy2DAsync, const CUDA_MEMCPY2D*, CUstream)
SUCCEED(cuMemsetD8Async, CUdeviceptr, unsigned char, std::size_t, CUstream)
SUCCEED(cuMemsetD16Async, CUdeviceptr, unsigned short, std::size_t, CUstream)
SUCCEED(cuMemsetD32Async, CUdeviceptr, unsigned, std::size_t, CUstream)
SUCCEED(cuMemsetD2D8Async, CUdeviceptr, std::size_t, unsigned char, std::size_t, std::size_t, CUstream)
SUCCEED(cuMemsetD2D16Async, CUdeviceptr, std::size_t, unsigned short, std::size_t, std::size_t, CUstream)
SUCCEED(cuMemsetD2D32Async, CUdeviceptr, std::size_t, unsigned, std::size_t, std::size_t, CUstream)
CUresult cuGraphCreate(CUgraph* graph, unsigned) { return make(graph); }
SUCCEED(cuGraphDestroy, CUgraph)
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t,
                              const CUDA_KERNEL_NODE_PARAMS*) {
  return make(node);
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMCPY3D*,
                              CUcontext) {
  return make(node);
}
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t,
                              const CUDA_MEMSET_NODE_PARAMS*, CUcontext) {
  return make(node);
}
CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t, CUevent) {
  return make(node);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph, unsigned long long) { return make(exec); }
SUCCEED(cuGraphExecDestroy, CUgraphExec)
SUCCEED(cuGraphExecKernelNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)
SUCCEED(cuGraphExecMemcpyNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext)
SUCCEED(cuGraphExecMemsetNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*, CUcontext)
SUCCEED(cuGraphExecEventRecordNodeSetEvent, CUgraphExec, CUgraphNode, CUevent)
SUCCEED(cuGraphLaunch, CUgraphExec, CUstream)
}
