// Finds out whether an address points to memory that a kernel could reach.
//
// Parameters hold many words that look like addresses but are not: adjacent sizes, stale padding of structures,
// pointers to the host's own memory. The driver knows all memory that devices can reach, with one exception: if a
// device can access pageable memory, that is everything that the process has mapped.
//
// Immutable; thread-safe. Its queries do not disturb captures (tests/fidelity/capture_rules.txt).
#pragma once

#include <cuda.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace nimble {

class Reach {
 public:
  // Without a driver: every address may point somewhere.
  Reach() = default;

  // The driver must be initialised. Any of its functions may be null.
  Reach(decltype(&::cuPointerGetAttribute) pointer_attribute, decltype(&::cuDeviceGetCount) device_count,
        decltype(&::cuDeviceGetAttribute) device_attribute) {
    int devices = 0;
    if (!pointer_attribute || !device_count || !device_attribute || device_count(&devices) != CUDA_SUCCESS) return;
    for (CUdevice device = 0; device < devices; ++device) {
      int pageable = 1;
      if (device_attribute(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) != CUDA_SUCCESS) return;
      pageable_ |= pageable != 0;
    }
    pointer_attribute_ = pointer_attribute;
  }

  // Whether an answer holds until the driver allocates memory. Not if devices reach pageable memory, which the process
  // may map at any time.
  bool lasts() const { return !pageable_; }

  // Whether there is no memory at this address that a kernel could reach. False if unknown.
  bool nowhere(std::uint64_t address) const {
    if (!pointer_attribute_) return false;
    unsigned type = 0;
    // Other errors, such as a destroyed context, say nothing about the address.
    if (pointer_attribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_ERROR_INVALID_VALUE) return false;
    return !pageable_ || !mapped(address);
  }

 private:
  // Whether the process has memory there. If the system does not let us look, it counts as mapped.
  static bool mapped(std::uint64_t address) {
    char byte = 0;
    const iovec local{&byte, 1}, remote{reinterpret_cast<void*>(address), 1};
    return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1 || errno != EFAULT;
  }

  decltype(&::cuPointerGetAttribute) pointer_attribute_ = nullptr;
  bool pageable_ = false;
};

}  // namespace nimble
