// What an allocation that Nimble stands behind has for itself, as the driver's allocations have: a number that no other
// allocation of the process has or had (CU_POINTER_ATTRIBUTE_BUFFER_ID), and whether the program has asked for copies
// of it to be synchronous (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS). Nothing is kept of allocations about which neither was
// ever asked.
//
// The number is the driver's own: it is taken from a piece of memory that is allocated and released for it. The driver
// gives each allocation a new one, also where the address comes back (tests/fidelity/memory_answers.txt).
//
// Thread-safe: a lock of its own, never held while the driver is called. gone() is for the replay path: it costs a load
// where nothing was asked.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class MemoryAnswers {
 public:
  // Fills in what `call` asks about the allocation that begins at `base`, or keeps what it sets. Asks the driver with
  // `context` current.
  void answer(Call& call, std::uint64_t base, const DriverApi& driver, CUcontext context);
  // Whether copies of any allocation are to be synchronous, and of the one that begins at `base`.
  bool any_synchronous() const { return any_.load(std::memory_order_acquire); }
  bool is_synchronous(std::uint64_t base) const;
  // The allocation that began there is gone: what comes there next is another.
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
  std::map<std::uint64_t, Known> known_;  // by where it begins
};

}  // namespace nimble
