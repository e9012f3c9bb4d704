// A driver that does nothing but keep a list of what was submitted to it, for tests of the state machine. What the
// submitted work computes is tested on simcuda, with real processes (tests/integration).
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class FakeDriver final : public CallContext {
 public:
  FakeDriver() {
    instance_ = this;
    kernel_.name = "k";
    kernel_.params = {{0, 8}, {8, 4}};
    kernel_.param_bytes = 12;
    other_.name = "other";
    other_.params = kernel_.params;
    other_.param_bytes = 12;
  }
  ~FakeDriver() override { instance_ = nullptr; }

  const FunctionInfo& function(CUfunction handle) override { return handle == kKernel ? kernel_ : other_; }
  StreamKind stream_kind(const StreamRef& stream) override {
    return stream.is_legacy()           ? StreamKind::legacy
           : stream.handle == kBlocking ? StreamKind::blocking
                                        : StreamKind::non_blocking;
  }
  void* driver_symbol(const char*) override { return nullptr; }  // tests fill DriverApi by api()

  // The functions that matter, by their real types.
  DriverApi api();

  static inline const CUfunction kKernel = reinterpret_cast<CUfunction>(0x10);
  static inline const CUstream kStream = reinterpret_cast<CUstream>(0x1000),
                               kOther = reinterpret_cast<CUstream>(0x2000),
                               kBlocking = reinterpret_cast<CUstream>(0x3000);
  static constexpr std::uint64_t kArena = 0x700000, kPiece = 0x800000, kArenaPool = 0x90;

  std::vector<std::string> log;  // what was submitted, in order
  CUcontext current = reinterpret_cast<CUcontext>(0x8);
  std::vector<CUcontext> pushed;    // contexts that were current before
  std::vector<CUstream> capturing;  // streams that collect a graph of the program's
  bool busy = false;                // no event has happened yet
  unsigned long long pieces = 0;    // numbers given out for pieces of memory
  int own_streams = 0;              // that were created and are still there
  float elapsed_ms = 1;             // between any two events
  std::size_t free_memory = 1 << 20;
  std::uint64_t odd_bytes = 0;             // what is copied to the host from here is ones, else zeros
  std::map<std::string, CUresult> refuse;  // by log entry's first word: what to answer instead

 private:
  static CUresult done(const std::string& what) {
    instance_->log.push_back(what);
    const auto found = instance_->refuse.find(what.substr(0, what.find(' ')));
    if (found == instance_->refuse.end()) return CUDA_SUCCESS;
    instance_->log.pop_back();
    return found->second;
  }
  static inline FakeDriver* instance_ = nullptr;
  FunctionInfo kernel_, other_;
};

inline DriverApi FakeDriver::api() {
  DriverApi api;
  api.cuCtxGetCurrent_ = [](CUcontext* out) { return *out = instance_->current, CUDA_SUCCESS; };
  api.cuCtxPushCurrent_ = [](CUcontext context) {
    instance_->pushed.push_back(std::exchange(instance_->current, context));
    return CUDA_SUCCESS;
  };
  api.cuCtxPopCurrent_ = [](CUcontext* out) {
    *out = std::exchange(instance_->current, instance_->pushed.back());
    instance_->pushed.pop_back();
    return CUDA_SUCCESS;
  };
  api.cuMemAlloc_ = [](CUdeviceptr* out, std::size_t) { return *out = kArena, done("alloc"); };
  api.cuMemAllocAsync_ = [](CUdeviceptr* out, std::size_t bytes, CUstream) {
    return *out = bytes == 1 ? kPiece : kArena, done(bytes == 1 ? "piece" : "alloc");
  };
  api.cuMemFreeAsync_ = [](CUdeviceptr pointer, CUstream) { return done(pointer == kArena ? "free" : "piece_free"); };
  api.cuThreadExchangeStreamCaptureMode_ = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  api.cuStreamDestroy_ = [](CUstream) { return --instance_->own_streams, CUDA_SUCCESS; };
  api.cuMemPoolGetAttribute_ = [](CUmemoryPool, CUmemPool_attribute, void* value) {
    return *static_cast<cuuint64_t*>(value) = 4096, CUDA_SUCCESS;
  };
  api.cuMemPoolTrimTo_ = [](CUmemoryPool, std::size_t bytes) { return done("trim " + std::to_string(bytes)); };
  api.cuPointerGetAttribute_ = [](void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE && pointer == kArena)
      return *static_cast<CUmemoryPool*>(out) = reinterpret_cast<CUmemoryPool>(kArenaPool), CUDA_SUCCESS;
    if (attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID || pointer != kPiece) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<unsigned long long*>(out) = ++instance_->pieces;
    return CUDA_SUCCESS;
  };
  api.cuEventCreate_ = [](CUevent* out, unsigned) { return *out = reinterpret_cast<CUevent>(0x9), CUDA_SUCCESS; };
  api.cuEventDestroy_ = [](CUevent) { return CUDA_SUCCESS; };
  api.cuEventRecord_ = [](CUevent, CUstream) { return done("record"); };
  api.cuStreamWaitEvent_ = [](CUstream, CUevent, unsigned) { return done("wait"); };
  api.cuStreamIsCapturing_ = [](CUstream stream, CUstreamCaptureStatus* out) {
    const std::vector<CUstream>& all = instance_->capturing;
    const bool captures = std::find(all.begin(), all.end(), stream) != all.end();
    return *out = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
  };
  api.cuLaunchKernel_ = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                           void** params, void**) {
    return done("launch " + std::to_string(*static_cast<std::uint32_t*>(params[1])));
  };
  api.cuMemsetD32Async_ = [](CUdeviceptr, unsigned value, std::size_t, CUstream) {
    return done("set " + std::to_string(value));
  };
  api.cuGraphCreate_ = [](CUgraph* out, unsigned) { return *out = reinterpret_cast<CUgraph>(0x20), CUDA_SUCCESS; };
  api.cuGraphDestroy_ = [](CUgraph) { return CUDA_SUCCESS; };
  api.cuGraphAddKernelNode_ = [](CUgraphNode* out, CUgraph, const CUgraphNode*, std::size_t,
                                 const CUDA_KERNEL_NODE_PARAMS*) {
    return *out = reinterpret_cast<CUgraphNode>(0x30), done("node");
  };
  api.cuGraphAddMemsetNode_ = [](CUgraphNode* out, CUgraph, const CUgraphNode*, std::size_t,
                                 const CUDA_MEMSET_NODE_PARAMS*,
                                 CUcontext) { return *out = reinterpret_cast<CUgraphNode>(0x31), done("node"); };
  api.cuGraphAddEventRecordNode_ = [](CUgraphNode* out, CUgraph, const CUgraphNode*, std::size_t, CUevent) {
    return *out = reinterpret_cast<CUgraphNode>(0x32), done("node");
  };
  api.cuCtxGetStreamPriorityRange_ = [](int* least, int* greatest) { return *least = 0, *greatest = -5, CUDA_SUCCESS; };
  api.cuStreamGetPriority_ = [](CUstream, int* priority) { return *priority = -2, CUDA_SUCCESS; };
  api.cuGraphKernelNodeSetAttribute_ = [](CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue* value) {
    return done("priority " + std::to_string(value->priority));
  };
  api.cuGraphInstantiateWithFlags_ = [](CUgraphExec* out, CUgraph, unsigned long long flags) {
    *out = reinterpret_cast<CUgraphExec>(0x40);
    return done(flags == CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY ? "instantiate_with_priorities" : "instantiate");
  };
  api.cuGraphExecDestroy_ = [](CUgraphExec) { return CUDA_SUCCESS; };
  api.cuGraphExecKernelNodeSetParams_ = [](CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* node) {
    return done("patch " + std::to_string(*static_cast<std::uint32_t*>(node->kernelParams[1])));
  };
  api.cuGraphExecMemsetNodeSetParams_ = [](CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS* node, CUcontext) {
    return done("patch " + std::to_string(node->value));
  };
  api.cuGraphExecEventRecordNodeSetEvent_ = [](CUgraphExec, CUgraphNode, CUevent) { return done("patch event"); };
  api.cuMemcpyAsync_ = [](CUdeviceptr, CUdeviceptr, std::size_t bytes, CUstream) {
    return done("copy " + std::to_string(bytes));
  };
  api.cuMemcpyDtoHAsync_ = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
    std::memset(to, from == instance_->odd_bytes ? 1 : 0, bytes);
    return CUDA_SUCCESS;
  };
  api.cuMemGetInfo_ = [](std::size_t* free, std::size_t* total) {
    return *free = instance_->free_memory, *total = instance_->free_memory, CUDA_SUCCESS;
  };
  api.cuEventQuery_ = [](CUevent) { return instance_->busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
  api.cuStreamQuery_ = [](CUstream) { return instance_->busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
  api.cuEventElapsedTime_ = [](float* ms, CUevent, CUevent) { return *ms = instance_->elapsed_ms, CUDA_SUCCESS; };
  api.cuStreamCreate_ = [](CUstream* out, unsigned) {
    return *out = reinterpret_cast<CUstream>(0x60), ++instance_->own_streams, CUDA_SUCCESS;
  };
  api.cuStreamSynchronize_ = [](CUstream) { return CUDA_SUCCESS; };
  api.cuGraphLaunch_ = [](CUgraphExec, CUstream) { return done("graph"); };
  return api;
}

}  // namespace nimble
