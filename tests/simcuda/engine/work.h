// What an op does once it runs, and what a graph node does each time: one value type for both, so that a launch copies
// a node's work as it stands. Plain data; who holds it guards it.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // every version of every entry point under its own name
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace simcuda {

struct KernelCode;
struct Block;

// The bytes of a parameter buffer: in place where they are few, which is almost always.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes& other) { assign(other.data(), other.size_); }
  Bytes& operator=(const Bytes& other) {
    if (this != &other) assign(other.data(), other.size_);
    return *this;
  }
  Bytes(Bytes&& other) noexcept { *this = std::move(other); }
  Bytes& operator=(Bytes&& other) noexcept {
    if (other.size_ <= sizeof small_) {
      if (other.size_ != 0) std::memcpy(small_, other.small_, other.size_);
    } else {
      large_ = std::move(other.large_);
      capacity_ = std::exchange(other.capacity_, 0);
    }
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::byte* resize(std::size_t size) {
    if (size > sizeof small_ && size > capacity_) {
      large_.reset(static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment})));
      capacity_ = size;
    }
    size_ = size;
    return data();
  }
  void assign(const std::byte* bytes, std::size_t size) {
    std::byte* to = resize(size);
    if (size != 0) std::memcpy(to, bytes, size);
  }
  std::byte* data() { return size_ > sizeof small_ ? large_.get() : small_; }
  const std::byte* data() const { return size_ > sizeof small_ ? large_.get() : small_; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kAlignment = 128;  // the strictest that a parameter may ask for
  struct Delete {
    void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{kAlignment}); }
  };
  std::size_t size_ = 0, capacity_ = 0;
  std::unique_ptr<std::byte, Delete> large_;
  alignas(64) std::byte small_[128];
};

enum class WorkKind : std::uint8_t {
  kEmpty,
  kKernel,
  kCopy,
  kSet,
  kHost,
  kEventRecord,
  kEventWait,
  kAlloc,
  kFree,
  kWriteValue,
  kWaitValue,
};

struct Dim {
  std::uint32_t x, y, z;
  std::uint64_t volume() const { return std::uint64_t{x} * y * z; }
};

struct Launch {
  const KernelCode* code;
  CUfunction function;  // as the program gave it: a CUfunction, or a CUkernel cast to one
  CUcontext context;
  Dim grid, block;
  std::uint32_t shared_bytes;
  bool cooperative;
};

// A box of bytes. Offsets of the API's forms are already added to the addresses; a plain copy has one row.
struct Copy {
  std::uint64_t destination, source;
  std::size_t width, height, depth;
  std::size_t destination_pitch, source_pitch;  // between rows
  std::size_t destination_slice, source_slice;  // between slices
  bool host_destination, host_source;           // may lie in memory that the driver knows nothing of
  bool staged;                                  // the source was read when the call was made
};

struct Set {
  std::uint64_t destination;
  std::size_t width, height, pitch;  // width in elements, pitch in bytes
  std::uint32_t value, element_bytes;
};

struct HostCall {
  CUhostFn function;          // either this ...
  CUstreamCallback callback;  // ... or this
  CUstream stream;
  void* data;
};

struct EventStep {
  CUevent event;
  bool external;         // a node or op that works on the event itself although its stream was captured
  std::uint64_t id = 0;  // of a node: the event's, when it was given to it
};

struct MemoryStep {
  Block* block;
  std::size_t bytes;
};

struct ValueStep {
  std::uint64_t address, value;
  std::uint32_t bytes, flags;
};

struct Work {
  WorkKind kind = WorkKind::kEmpty;
  const char* name = "";  // the kernel's, or what the API calls it; lives as long as the driver
  union {
    Launch launch;
    Copy copy;
    Set set;
    HostCall host;
    EventStep event;
    MemoryStep memory;
    ValueStep value;
  };
  Bytes parameters;  // of a kernel

  Work() : copy{} {}
};

}  // namespace simcuda
