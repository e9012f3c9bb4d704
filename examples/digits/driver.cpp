// Checked calls of the CUDA driver API.
#include "driver.h"

#include <cstdint>

#include "error.h"

namespace digits {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::string what = std::string(call) + " failed: " + (name != nullptr ? name : "error " + std::to_string(result));
  if (text != nullptr) what += std::string(" (") + text + ")";
  throw Error(what);
}

Device::Device(const std::filesystem::path& images) {
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device_, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  try {
    check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    load_module(images);
    keep_freed_memory();
  } catch (...) {
    cuDevicePrimaryCtxRelease(device_);
    throw;
  }
}

Device::~Device() {
  cuModuleUnload(module_);
  cuDevicePrimaryCtxRelease(device_);
}

void Device::load_module(const std::filesystem::path& images) {
  std::string tried;
  for (const char* file : {"digits.fatbin", "digits.simcuda"}) {
    image_ = images / file;
    if (!std::filesystem::exists(image_)) continue;
    const CUresult result = cuModuleLoad(&module_, image_.c_str());
    if (result == CUDA_SUCCESS) return;
    // Not for this device: the other image may be.
    if (result != CUDA_ERROR_INVALID_IMAGE && result != CUDA_ERROR_NO_BINARY_FOR_GPU) check(result, "cuModuleLoad");
    tried += (tried.empty() ? "" : " and ") + image_.string();
  }
  if (tried.empty()) throw Error("no kernels: there is neither digits.fatbin nor digits.simcuda in " + images.string());
  throw Error("no kernels for this device (" + name() + ") in " + tried +
              "; digits.fatbin, which a GPU needs, is built where nvcc is found");
}

// By default a pool gives freed memory back to the system at each synchronisation, and the next step fetches it again.
void Device::keep_freed_memory() {
  CUmemoryPool pool = nullptr;
  check(cuDeviceGetDefaultMemPool(&pool, device_), "cuDeviceGetDefaultMemPool");
  cuuint64_t threshold = UINT64_MAX;
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "cuMemPoolSetAttribute");
}

std::string Device::name() const {
  char text[256] = {};
  check(cuDeviceGetName(text, sizeof(text) - 1, device_), "cuDeviceGetName");
  return text;
}

int Device::attribute(CUdevice_attribute which) const {
  int value = 0;
  check(cuDeviceGetAttribute(&value, which, device_), "cuDeviceGetAttribute");
  return value;
}

std::size_t Device::memory_bytes() const {
  std::size_t bytes = 0;
  check(cuDeviceTotalMem(&bytes, device_), "cuDeviceTotalMem");
  return bytes;
}

CUfunction Device::function(const std::string& name) const {
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module_, name.c_str()), ("cuModuleGetFunction of " + name).c_str());
  return function;
}

Tensor::Tensor(Stream& stream, std::size_t bytes) : stream_(&stream), address_(stream.allocate(bytes)), bytes_(bytes) {}

void Tensor::release() {
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->free(address_);
}

CUdeviceptr Stream::allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAllocAsync(&address, bytes, stream_), "cuMemAllocAsync");
  ++operations_;
  return address;
}

void Stream::free(CUdeviceptr address) noexcept {
  const CUresult result = cuMemFreeAsync(address, stream_);
  if (free_result_ == CUDA_SUCCESS) free_result_ = result;
  ++operations_;
}

void Stream::launch_kernel(CUfunction kernel, unsigned blocks, void** parameters) {
  check(cuLaunchKernel(kernel, blocks, 1, 1, kBlock, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
  ++operations_;
}

void Stream::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  check(cuMemcpyDtoDAsync(to, from, bytes, stream_), "cuMemcpyDtoDAsync");
  ++operations_;
}

void Stream::copy_in(CUdeviceptr to, const void* from, std::size_t bytes) {
  check(cuMemcpyHtoDAsync(to, from, bytes, stream_), "cuMemcpyHtoDAsync");
  ++operations_;
}

void Stream::copy_out(void* to, CUdeviceptr from, std::size_t bytes) {
  check(cuMemcpyDtoHAsync(to, from, bytes, stream_), "cuMemcpyDtoHAsync");
  ++operations_;
}

void Stream::fill_zero(CUdeviceptr to, std::size_t bytes) {
  check(cuMemsetD32Async(to, 0, bytes / 4, stream_), "cuMemsetD32Async");
  ++operations_;
}

void Stream::record(const Event& event) {
  check(cuEventRecord(event.get(), stream_), "cuEventRecord");
  ++operations_;
}

void Stream::synchronize() {
  check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  check(free_result_, "cuMemFreeAsync");
}

}  // namespace digits
