// The driver functions that the replayer calls: real ones, never our wrappers. Filled once, then constant.
#pragma once

#include <cuda.h>

#include "nimble/internal/call.h"

namespace nimble {

// cuda.h maps each of these names to its newest version; the member keeps the plain name.
// clang-format off
#define NIMBLE_REPLAY_FUNCTIONS(X)                                                                                \
  X(cuCtxGetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetStreamPriorityRange) X(cuMemAllocAsync)     \
  X(cuPointerGetAttribute) X(cuDeviceGetCount) X(cuDeviceGetAttribute)                                            \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)                                      \
  X(cuStreamWaitEvent) X(cuStreamIsCapturing) X(cuStreamQuery) X(cuStreamSynchronize)                             \
  X(cuStreamGetPriority) X(cuGraphKernelNodeSetAttribute)                                                         \
  X(cuLaunchKernel) X(cuMemcpyAsync) X(cuMemcpy2DAsync)                                                           \
  X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async)                                                      \
  X(cuMemsetD2D8Async) X(cuMemsetD2D16Async) X(cuMemsetD2D32Async)                                                \
  X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphAddKernelNode) X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode)      \
  X(cuGraphAddEventRecordNode) X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy)                               \
  X(cuGraphExecKernelNodeSetParams) X(cuGraphExecMemcpyNodeSetParams) X(cuGraphExecMemsetNodeSetParams)           \
  X(cuGraphExecEventRecordNodeSetEvent) X(cuGraphLaunch)
// Needed when the program queries its memory (replayer/bind/allocation_attributes.h), or the arena is released.
#define NIMBLE_MEMORY_FUNCTIONS(X)                                                                                 \
  X(cuMemFreeAsync) X(cuThreadExchangeStreamCaptureMode) X(cuStreamDestroy) X(cuMemPoolGetAttribute)               \
  X(cuMemPoolTrimTo)
// Also needed by audits (replayer/audit/audit.h); regions and saved steps allocate by these, too.
#define NIMBLE_AUDIT_FUNCTIONS(X) X(cuMemAlloc) X(cuMemGetInfo) X(cuMemcpyDtoHAsync) X(cuStreamCreate)
// clang-format on

struct DriverApi {
#define X(function) decltype(&::function) function##_ = nullptr;
  NIMBLE_REPLAY_FUNCTIONS(X)
  NIMBLE_MEMORY_FUNCTIONS(X)
  NIMBLE_AUDIT_FUNCTIONS(X)
#undef X
  // By its plain name, since drivers before 12.8 have no other. If null, nothing is timed.
  CUresult (*cuEventElapsedTime_)(float* ms, CUevent begin, CUevent end) = nullptr;

  // Looks them up. Returns the name of the first missing one, or null; those for audits are required only on request.
  const char* load(CallContext& context, bool audits);
};

}  // namespace nimble
