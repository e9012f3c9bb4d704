// The driver that nimble-replay runs on: its functions, a context on one device, and what went wrong.
//
// Loaded by name, as libcuda.so.1: the simulated driver if that comes first. One per process; the context is current on
// the thread that made it, which alone may use it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "replayer/driver/driver_api.h"

namespace nimble::bundle {

// The driver refused a call, or is missing. what() is one line.
class DriverError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The step cannot be run here. what() is one line that says why.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The host's memory in bytes: an upper bound for requests.
std::uint64_t memory_of_machine();

// clang-format off
#define NIMBLE_BUNDLE_FUNCTIONS(X)                                                                                   \
  X(cuInit) X(cuDeviceGet) X(cuDeviceGetName) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize)     \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal) X(cuFuncSetAttribute) X(cuLaunchCooperativeKernel) \
  X(cuMemFree) X(cuMemGetAllocationGranularity) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate)            \
  X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemHostRegister) X(cuMemHostUnregister)            \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemsetD8) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)                            \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuEventSynchronize)
// clang-format on

class LiveDriver final : public CallContext {
 public:
  // Throws DriverError.
  explicit LiveDriver(int device);

  const DriverApi& api() const { return api_; }
#define X(function) decltype(&::function) function##_ = nullptr;
  NIMBLE_BUNDLE_FUNCTIONS(X)
#undef X

  CUcontext context() const { return context_; }
  CUdevice device() const { return device_; }
  const std::string& device_name() const { return device_name_; }
  // Whether times of this driver are a model's.
  bool simulated() const { return simulated_; }

  // Throws DriverError if the driver has refused, naming what was done.
  static void check(CUresult result, const char* doing) {
    if (result != CUDA_SUCCESS) [[unlikely]]
      refused(result, doing);
  }

  // As in CallContext, for replayer/'s queries about live functions.
  const FunctionInfo& function(CUfunction handle) override;
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
  void* driver_symbol(const char* name) override;
  void know(CUfunction handle, FunctionInfo info);

 private:
  [[noreturn]] static void refused(CUresult result, const char* doing);

  void* library_ = nullptr;
  DriverApi api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string device_name_;
  bool simulated_ = false;
  std::unordered_map<CUfunction, FunctionInfo> functions_;
};

}  // namespace nimble::bundle
