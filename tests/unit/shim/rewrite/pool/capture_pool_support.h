// What the tests of CapturePool share: a driver that only allocates, and a capture.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "shim/rewrite/pool/capture_pool.h"

namespace nimble::shim {

using Kind = CaptureMemory::Kind;
using Release = CapturePool::Release;

// Its allocations lie far apart.
class AllocatingDriver final : public CallContext {
 public:
  AllocatingDriver() { instance_ = this; }
  ~AllocatingDriver() override { instance_ = nullptr; }
  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    if (!std::strcmp(name, "cuMemAlloc_v2")) return reinterpret_cast<void*>(&allocate);
    if (!std::strcmp(name, "cuMemFree_v2")) return reinterpret_cast<void*>(&free);
    if (!std::strcmp(name, "cuCtxPushCurrent_v2")) return reinterpret_cast<void*>(&push);
    if (!std::strcmp(name, "cuCtxPopCurrent_v2")) return reinterpret_cast<void*>(&pop);
    if (!std::strcmp(name, "cuMemAllocAsync")) return reinterpret_cast<void*>(&allocate_async);
    if (!std::strcmp(name, "cuStreamCreate")) return reinterpret_cast<void*>(&create);
    if (!std::strcmp(name, "cuStreamQuery")) return reinterpret_cast<void*>(&query);
    if (!std::strcmp(name, "cuMemFreeAsync")) return reinterpret_cast<void*>(&free_async);
    if (!std::strcmp(name, "cuStreamDestroy_v2")) return reinterpret_cast<void*>(&destroy);
    return nullptr;
  }
  CUcontext pushed = nullptr, asked_in = nullptr;
  std::map<CUdeviceptr, std::size_t> live;
  std::map<CUdeviceptr, std::size_t> of_pool;  // of these
  int streams = 0;
  bool refuses = false, comes_late = false;

 private:
  static CUresult CUDAAPI create(CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(std::uintptr_t{64});
    ++instance_->streams;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI query(CUstream) { return instance_->comes_late ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
  static CUresult CUDAAPI free_async(CUdeviceptr address, CUstream) {
    instance_->of_pool.erase(address);
    return free(address);
  }
  static CUresult CUDAAPI destroy(CUstream) {
    --instance_->streams;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI allocate_async(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = allocate(out, bytes);
    if (result == CUDA_SUCCESS) instance_->of_pool[*out] = bytes;
    return result;
  }
  static CUresult CUDAAPI allocate(CUdeviceptr* out, std::size_t bytes) {
    if (instance_->refuses) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = instance_->next_;
    instance_->next_ += std::uint64_t{1} << 32;
    instance_->live[*out] = bytes;
    instance_->asked_in = instance_->pushed;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI push(CUcontext context) {
    instance_->pushed = context;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI pop(CUcontext* context) {
    *context = std::exchange(instance_->pushed, nullptr);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI free(CUdeviceptr address) {
    return instance_->live.erase(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  static inline AllocatingDriver* instance_ = nullptr;
  FunctionInfo function_;
  CUdeviceptr next_ = std::uint64_t{1} << 32;
};

class CapturePoolTest : public testing::Test {
 protected:
  static CUgraph graph(std::uintptr_t id) { return reinterpret_cast<CUgraph>(id); }
  static CUgraphExec exec(std::uintptr_t id) { return reinterpret_cast<CUgraphExec>(id); }
  std::uint64_t allocate(std::uint64_t size, std::size_t node = 0, std::uint64_t stream = 1) {
    return allocate_in(kCapture, size, node, stream);
  }
  std::uint64_t allocate_in(std::uint64_t capture, std::uint64_t size, std::size_t node = 0, std::uint64_t stream = 1) {
    const auto slot = pool_.allocate(capture, {}, stream, node, size);
    return slot ? slot->address : 0;
  }
  bool release(std::uint64_t address, std::optional<std::size_t> node = 0, std::uint64_t stream = 1) {
    return pool_.release(address, stream, kCapture, node) == Release::done;
  }

  static constexpr std::uint64_t kCapture = 7;
  AllocatingDriver context_;
  CapturePool pool_{context_};
};

}  // namespace nimble::shim
