// Device memory in two parts, as the driver's virtual memory management has it: addresses, and physical memory that is
// mapped there piece by piece. What lies behind an address can be exchanged while nothing runs that touches it, and the
// same physical memory may lie behind several.
//
// Such memory is a device's, and no context's: it outlives them all. Has no state. Any thread; callers see to it that
// no two of them map the same addresses at once. Errors are the driver's, as answers: nothing has changed then. No
// stream need be waited for, but what is unmapped must not be in use.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "nimble/internal/call.h"

namespace nimble::shim {

using Physical = CUmemGenericAllocationHandle;

class Mapping {
 public:
  // Of a piece, at least; the sizes of all are multiples of it. The driver's own is 2 MiB (H100, H200, 580.159).
  static constexpr std::uint64_t kGrain = std::uint64_t{2} << 20;

  explicit Mapping(CallContext& context) : context_(context) {}

  // The current context's device, where all of that can be done there; and where addresses have no limit in this
  // process, which it would meet sooner.
  std::optional<CUdevice> device() const;
  // Addresses with nothing behind them; 0 where there are none.
  std::uint64_t reserve(std::uint64_t bytes) const;
  void give_back(std::uint64_t address, std::uint64_t bytes) const;
  // Physical memory; nothing where the device has none.
  std::optional<Physical> create(CUdevice device, std::uint64_t bytes) const;
  // What is mapped stays until it is unmapped.
  void release(Physical physical) const;
  // Puts all of it behind addresses that have nothing behind them. Nobody may touch it before allow().
  bool map(std::uint64_t address, std::uint64_t bytes, Physical physical) const;
  // What is mapped there, one piece after another, the device may read and write.
  bool allow(std::uint64_t address, std::uint64_t bytes, CUdevice device) const;
  bool unmap(std::uint64_t address, std::uint64_t bytes) const;

 private:
  template <class Function>
  Function* find(const char* name) const;

  CallContext& context_;
};

}  // namespace nimble::shim
