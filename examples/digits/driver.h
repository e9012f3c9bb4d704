// The part of the CUDA driver API that digits uses, with checked calls and owners for what must be freed.
//
// Everything runs on one device, in its primary context, from one thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace digits {

// Throws Error, "<call> failed: <the driver's name and text for the result>", unless the result is CUDA_SUCCESS.
void check(CUresult result, const char* call);

// Device 0, its primary context made current, and the module with the kernels.
class Device {
 public:
  // The kernels are in images/digits.fatbin for a GPU, and in images/digits.simcuda for the simulated driver.
  explicit Device(const std::filesystem::path& images);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string name() const;
  int attribute(CUdevice_attribute which) const;
  std::size_t memory_bytes() const;
  CUfunction function(const std::string& name) const;
  const std::filesystem::path& image() const { return image_; }

 private:
  void load_module(const std::filesystem::path& images);
  void keep_freed_memory();

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::filesystem::path image_;
};

class Event {
 public:
  explicit Event(unsigned flags) { check(cuEventCreate(&event_, flags), "cuEventCreate"); }
  ~Event() { cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void synchronize() const { check(cuEventSynchronize(event_), "cuEventSynchronize"); }
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

// Device memory that lives as long as this object: parameters and the like.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) { check(cuMemAlloc(&address_, bytes), "cuMemAlloc"); }
  ~DeviceBuffer() {
    if (address_ != 0) cuMemFree(address_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept : address_(std::exchange(other.address_, 0)), bytes_(other.bytes_) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

// Page-locked host memory, which the device copies from and to without a stop at a staging buffer.
template <class T>
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t count) : count_(count) {
    check(cuMemAllocHost(reinterpret_cast<void**>(&data_), count * sizeof(T)), "cuMemAllocHost");
  }
  ~PinnedBuffer() { cuMemFreeHost(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

class Stream;

// A stream-ordered allocation, freed in stream order when this object ends. It must not outlive its stream.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Stream& stream, std::size_t bytes);
  ~Tensor() { release(); }
  Tensor(Tensor&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)), address_(other.address_), bytes_(other.bytes_) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  int count() const { return static_cast<int>(bytes_ / 4); }  // elements of 4 bytes

  void release();

 private:
  Stream* stream_ = nullptr;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
};

// A non-blocking stream. It counts the operations that it is given.
//
// What could run side by side is marked by fork and aside. Here that means nothing: all of it runs in order. It is for
// streams that are captured into a graph (bench/by_hand/capture_stream.h), which override what is virtual.
class Stream {
 public:
  Stream() { check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }
  virtual ~Stream() { cuStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // One thread for each of `threads` outputs. The arguments must have the kernel's own types; a pointer parameter takes
  // a Tensor or a DeviceBuffer.
  template <class... Arguments>
  void launch(CUfunction kernel, int threads, const Arguments&... arguments) {
    launch_values(kernel, threads, kernel_argument(arguments)...);
  }

  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
  void copy_in(CUdeviceptr to, const void* from, std::size_t bytes);
  void copy_out(void* to, CUdeviceptr from, std::size_t bytes);
  void fill_zero(CUdeviceptr to, std::size_t bytes);  // a multiple of 4 bytes
  virtual void record(const Event& event);
  void synchronize();

  // What follows, up to join, are branches that need nothing of each other; branch begins the next one.
  virtual void fork() {}
  virtual void branch() {}
  virtual void join() {}
  // No one needs what comes between the first two before the third.
  virtual void begin_aside() {}
  virtual void end_aside() {}
  virtual void join_asides() {}

  std::uint64_t operations() const { return operations_; }

 protected:
  virtual CUdeviceptr allocate(std::size_t bytes);
  virtual void free(CUdeviceptr address) noexcept;

  CUstream stream_ = nullptr;
  std::uint64_t operations_ = 0;

 private:
  friend class Tensor;

  static constexpr int kBlock = 128;

  static CUdeviceptr kernel_argument(const Tensor& tensor) { return tensor.address(); }
  static CUdeviceptr kernel_argument(const DeviceBuffer& buffer) { return buffer.address(); }
  template <class T>
  static T kernel_argument(const T& value) {
    return value;
  }

  template <class... Values>
  void launch_values(CUfunction kernel, int threads, Values... values) {
    void* parameters[] = {&values...};
    launch_kernel(kernel, static_cast<unsigned>((threads + kBlock - 1) / kBlock), parameters);
  }

  void launch_kernel(CUfunction kernel, unsigned blocks, void** parameters);

  CUresult free_result_ = CUDA_SUCCESS;  // of the frees, which run in destructors; synchronize() reports it
};

}  // namespace digits
