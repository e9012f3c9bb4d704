// The own attributes of allocations that Nimble provides: a number that is unique among all allocations of the process
// over time (CU_POINTER_ATTRIBUTE_BUFFER_ID), and whether the program has asked for synchronous copies
// (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS). Keeps nothing for allocations about which neither was ever asked. What else is
// answered about memory: nimble/internal/answers.def.
//
// The number is the driver's own: that of a piece of memory allocated and released for the purpose. The driver gives
// each allocation a new one, even at a reused address (tests/fidelity/memory_answers.txt).
//
// Thread-safe: its own lock is never held while the driver is called. gone() is for the replay path: it costs a load if
// nothing was ever asked.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class AllocationAttributes {
 public:
  // Fills in what `call` asks about the allocation that begins at `base`, or keeps what it sets. Asks the driver with
  // `context` current.
  void answer(Call& call, std::uint64_t base, const DriverApi& driver, CUcontext context);
  // Whether copies of any allocation must be synchronous; of the one that begins at `base`.
  bool any_synchronous() const { return any_.load(std::memory_order_acquire); }
  bool is_synchronous(std::uint64_t base) const;
  // The allocation that began there is gone: the next one there is another.
  void gone(std::uint64_t base) {
    if (any_.load(std::memory_order_acquire)) [[unlikely]]
      forget(base);
  }

 private:
  struct Known {
    std::uint64_t id = 0;
    bool synchronous = false;
  };

  void forget(std::uint64_t base);
  std::uint64_t fresh_id(const DriverApi& driver, CUcontext context);

  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Known> known_;  // by begin
};

}  // namespace nimble
