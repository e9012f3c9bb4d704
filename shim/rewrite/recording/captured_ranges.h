// Where captures have memory, whatever is recorded: allocations as whoever looks at anything but the nodes of their
// graphs may take them. One lock; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "shim/rewrite/pool/capture_memory.h"

namespace nimble::shim {

class CapturedRanges {
 public:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // address, bytes

  // What there is of this capture's from now on, which is returned.
  Ranges add(const CaptureMemory& memory);
  // It has gone back to the driver.
  void remove(const std::vector<MemorySlot>& slots);
  Ranges all() const;

 private:
  mutable std::mutex mutex_;
  Ranges ranges_;
};

}  // namespace nimble::shim
