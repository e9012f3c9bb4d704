// A libcuda.so.1 that does nothing, as fast as possible, and without a lock: it shows Nimble's cost undiluted,
// including every lock and every shared cache line of Nimble's own. For programs that check no result: the benchmarks
// of this folder, and examples/digits.
//
// Calls succeed. Handles and addresses are numbers that are never reused, except those of pinned memory, which exists.
// Functions and their parameters are those of the simulated driver's images. It has what those programs and Nimble's
// modes call, and nothing else.
#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bench/null_driver/functions.h"

// The functions that only succeed, by the names that cuda.h maps to their newest versions.
// clang-format off
#define SUCCEED(name, ...) CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }
// clang-format on

namespace {

// Addresses that nothing else uses, and that two adjacent numbers in a kernel's parameters do not resemble.
std::uint64_t number(std::uint64_t distance) {
  static std::atomic<std::uint64_t> next{0x5b3c'0000'0000};
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
CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) { return make(pool); }
SUCCEED(cuMemPoolSetAttribute, CUmemoryPool, CUmemPool_attribute, void*)
SUCCEED(cuDevicePrimaryCtxRelease, CUdevice)
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = kContext, CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = kContext, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext* context) { return *context = kContext, CUDA_SUCCESS; }
CUresult cuModuleLoad(CUmodule* module, const char* file) { return null_driver::load_module(module, file); }
SUCCEED(cuModuleUnload, CUmodule)
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return *function = null_driver::find_function(module, name), *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncGetName(const char** name, CUfunction function) { return *name = function->name, CUDA_SUCCESS; }
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (index >= function->param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->params[index].offset;
  *size = function->params[index].size;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) { return make(stream); }
SUCCEED(cuStreamDestroy, CUstream)
CUresult cuStreamGetFlags(CUstream, unsigned* flags) { return *flags = CU_STREAM_NON_BLOCKING, CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) { return *pointer = number(bytes), CUDA_SUCCESS; }
SUCCEED(cuMemFree, CUdeviceptr)
CUresult cuMemAllocHost(void** pointer, std::size_t bytes) {
  return *pointer = std::calloc(1, bytes), *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void* pointer) { return std::free(pointer), CUDA_SUCCESS; }
// No queried address is the driver's memory: callers know their own memory.
CUresult cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }
CUresult cuEventCreate(CUevent* event, unsigned) { return make(event); }
SUCCEED(cuEventDestroy, CUevent)

// Calls of programs in each step.
SUCCEED(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
        void**, void**)
SUCCEED(cuStreamSynchronize, CUstream)
SUCCEED(cuStreamQuery, CUstream)
SUCCEED(cuEventSynchronize, CUevent)
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) { return *milliseconds = 1, CUDA_SUCCESS; }
#ifdef cuEventElapsedTime  // and by its plain name, which replay looks up
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) { return *milliseconds = 1, CUDA_SUCCESS; }
#endif
CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream) {
  return *pointer = number(bytes), CUDA_SUCCESS;
}
SUCCEED(cuMemFreeAsync, CUdeviceptr, CUstream)
SUCCEED(cuMemcpyHtoDAsync, CUdeviceptr, const void*, std::size_t, CUstream)
SUCCEED(cuMemcpyDtoHAsync, void*, CUdeviceptr, std::size_t, CUstream)
SUCCEED(cuMemcpyDtoDAsync, CUdeviceptr, CUdeviceptr, std::size_t, CUstream)

// Calls of a program that captures its step.
SUCCEED(cuStreamBeginCapture, CUstream, CUstreamCaptureMode)
CUresult cuStreamEndCapture(CUstream, CUgraph* graph) { return make(graph); }
SUCCEED(cuEventRecordWithFlags, CUevent, CUstream, unsigned)
SUCCEED(cuGraphUpload, CUgraphExec, CUstream)

// Further calls that replay may make.
SUCCEED(cuEventQuery, CUevent)
SUCCEED(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void*) { return CUDA_ERROR_NOT_SUPPORTED; }
SUCCEED(cuMemPoolTrimTo, CUmemoryPool, std::size_t)
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, CUDA_SUCCESS; }
CUresult cuStreamGetPriority(CUstream, int* priority) { return *priority = 0, CUDA_SUCCESS; }
SUCCEED(cuGraphKernelNodeSetAttribute, CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue*)
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
