// A driver that has physical memory, and addresses to map it to. It fails the test where something is mapped twice, or
// given back that was not had.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "nimble/internal/call.h"

namespace nimble::shim {

class FakeMemory final : public CallContext {
 public:
  FakeMemory() { instance_ = this; }
  ~FakeMemory() override { instance_ = nullptr; }

  static inline CUcontext const kContext = reinterpret_cast<CUcontext>(std::uintptr_t{0x1000});
  static constexpr CUdeviceptr kPlain = 0x7000'0000;
  static constexpr std::uint64_t kGrain = std::uint64_t{2} << 20;

  std::map<CUmemGenericAllocationHandle, std::size_t> physical;         // and its size
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped, allowed;  // by address
  std::map<CUdeviceptr, CUmemAccess_flags> flags;                       // of what has been allowed
  std::map<CUdeviceptr, std::size_t> reserved;
  std::size_t room = SIZE_MAX;  // of physical memory
  int refuses = 0;              // so many pieces are not mapped
  bool supports = true, has_plain = true;

  std::size_t used() const {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const auto& [handle, bytes] : physical) sum += bytes;
    return sum;
  }

  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
  void* driver_symbol(const char* name) override {
#define NIMBLE_FAKE(function)            \
  if (std::strcmp(name, #function) == 0) \
  return reinterpret_cast<void*>(static_cast<decltype(&::function)>(&FakeMemory::function##_))
    NIMBLE_FAKE(cuCtxGetDevice);
    NIMBLE_FAKE(cuCtxPushCurrent_v2);
    NIMBLE_FAKE(cuCtxPopCurrent_v2);
    NIMBLE_FAKE(cuMemAlloc_v2);
    NIMBLE_FAKE(cuDeviceGetAttribute);
    NIMBLE_FAKE(cuMemGetAllocationGranularity);
    NIMBLE_FAKE(cuMemAddressReserve);
    NIMBLE_FAKE(cuMemAddressFree);
    NIMBLE_FAKE(cuMemCreate);
    NIMBLE_FAKE(cuMemRelease);
    NIMBLE_FAKE(cuMemMap);
    NIMBLE_FAKE(cuMemUnmap);
    NIMBLE_FAKE(cuMemSetAccess);
#undef NIMBLE_FAKE
    return nullptr;
  }

 private:
  static CUresult CUDAAPI cuCtxPushCurrent_v2_(CUcontext) { return CUDA_SUCCESS; }
  static CUresult CUDAAPI cuCtxPopCurrent_v2_(CUcontext*) { return CUDA_SUCCESS; }
  // Plain memory, of which it has little.
  static CUresult CUDAAPI cuMemAlloc_v2_(CUdeviceptr* out, std::size_t) {
    *out = kPlain;
    return std::exchange(instance_->has_plain, false) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  static CUresult CUDAAPI cuCtxGetDevice_(CUdevice* out) {
    *out = 3;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuDeviceGetAttribute_(int* out, CUdevice_attribute, CUdevice) {
    *out = instance_->supports ? 1 : 0;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemGetAllocationGranularity_(std::size_t* out, const CUmemAllocationProp* prop,
                                                         CUmemAllocationGranularity_flags) {
    EXPECT_EQ(prop->location.id, 3);
    *out = kGrain;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemAddressReserve_(CUdeviceptr* out, std::size_t bytes, std::size_t, CUdeviceptr,
                                               unsigned long long) {
    const std::lock_guard lock(instance_->mutex_);
    *out = instance_->addresses_;
    instance_->addresses_ += std::uint64_t{1} << 32;
    instance_->reserved[*out] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemAddressFree_(CUdeviceptr address, std::size_t bytes) {
    const std::lock_guard lock(instance_->mutex_);
    EXPECT_EQ(instance_->reserved[address], bytes);
    const auto inside = instance_->mapped.lower_bound(address);
    EXPECT_TRUE(inside == instance_->mapped.end() || inside->first >= address + bytes);
    instance_->reserved.erase(address);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemCreate_(CUmemGenericAllocationHandle* out, std::size_t bytes,
                                       const CUmemAllocationProp* prop, unsigned long long) {
    const std::lock_guard lock(instance_->mutex_);
    EXPECT_EQ(prop->location.id, 3);
    if (instance_->used() + bytes > instance_->room) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = ++instance_->next_;
    instance_->physical[*out] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemRelease_(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(instance_->mutex_);
    for (const auto& [address, there] : instance_->mapped) EXPECT_NE(there, handle) << "it is mapped still";
    EXPECT_EQ(instance_->physical.erase(handle), 1u);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemMap_(CUdeviceptr address, std::size_t bytes, std::size_t,
                                    CUmemGenericAllocationHandle handle, unsigned long long) {
    const std::lock_guard lock(instance_->mutex_);
    EXPECT_EQ(instance_->physical.at(handle), bytes);
    EXPECT_FALSE(instance_->mapped.contains(address));
    if (instance_->refuses > 0) {
      --instance_->refuses;
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    instance_->mapped[address] = handle;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemUnmap_(CUdeviceptr address, std::size_t bytes) {
    const std::lock_guard lock(instance_->mutex_);
    const auto found = instance_->mapped.find(address);
    EXPECT_TRUE(found != instance_->mapped.end() && instance_->physical.at(found->second) == bytes);
    instance_->mapped.erase(found);
    instance_->allowed.erase(address);
    instance_->flags.erase(address);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemSetAccess_(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                                          std::size_t) {
    const std::lock_guard lock(instance_->mutex_);
    auto& mapped = instance_->mapped;
    for (auto at = mapped.lower_bound(address); at != mapped.end() && at->first < address + bytes; ++at)
      instance_->allowed.insert(*at), instance_->flags[at->first] = access->flags;
    return CUDA_SUCCESS;
  }

  static inline FakeMemory* instance_ = nullptr;
  mutable std::recursive_mutex mutex_;
  FunctionInfo function_;
  std::uint64_t next_ = 0, addresses_ = std::uint64_t{1} << 40;
};

}  // namespace nimble::shim
