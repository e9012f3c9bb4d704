// The driver's virtual memory management: reserved addresses, and physical memory that is mapped there piece by piece.
// An address's backing can be exchanged while nothing runs that touches it, and several addresses may share physical
// memory.
//
// Such memory belongs to a device, not to a context, and outlives all contexts. No state. Any thread; callers ensure
// that no two of them map the same addresses at once. Driver errors are returned, and then nothing has changed. Need
// not wait for streams, but memory must not be in use when it is unmapped.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "nimble/internal/call.h"

namespace nimble::shim {

using Physical = CUmemGenericAllocationHandle;

class Mapping {
 public:
  // The smallest piece; all sizes are multiples of it. The driver's granularity is 2 MiB (H100, H200, 580.159).
  static constexpr std::uint64_t kGrain = std::uint64_t{2} << 20;

  explicit Mapping(CallContext& context) : context_(context) {}

  // The current context's device, if it supports all of this; and if this process has no limit on addresses, which it
  // would then reach sooner.
  std::optional<CUdevice> device() const;
  // Reserves addresses without backing; 0 if there are none.
  std::uint64_t reserve(std::uint64_t bytes) const;
  void give_back(std::uint64_t address, std::uint64_t bytes) const;
  // Physical memory; nothing if the device has none.
  std::optional<Physical> create(CUdevice device, std::uint64_t bytes) const;
  // Mapped memory stays until it is unmapped.
  void release(Physical physical) const;
  // Maps all of it at addresses without backing. It must not be touched before allow().
  bool map(std::uint64_t address, std::uint64_t bytes, Physical physical) const;
  // Lets the device read and write the consecutive mappings there; or only read them, or neither.
  bool allow(std::uint64_t address, std::uint64_t bytes, CUdevice device,
             CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) const;
  bool unmap(std::uint64_t address, std::uint64_t bytes) const;

 private:
  template <class Function>
  Function* find(const char* name) const;

  CallContext& context_;
};

}  // namespace nimble::shim
