// Where captures have memory, whether recorded or not: the allocations as seen by everything but the analysis of their
// graphs' nodes. One lock; any thread.
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

  // Adds this capture's memory, and returns its ranges.
  Ranges add(const CaptureMemory& memory);
  // They have gone back to the driver.
  void remove(const std::vector<MemorySlot>& slots);
  Ranges all() const;

 private:
  mutable std::mutex mutex_;
  Ranges ranges_;
};

}  // namespace nimble::shim
