// The program's live allocations, as far as a probe may read them. Thread-safe.
//
// It follows the calls as they arrive, so it may know less than the trace will: what it does not know is not compared,
// and the trace lists what was compared for each launch.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "nimble/internal/call.h"
#include "replayer/bind/memory_map.h"

namespace nimble::shim {

class LiveObjects {
 public:
  // An allocation has succeeded.
  void allocated(const Call& call);
  // The program is about to free it: do not read it from now on.
  void freed(const Call& call);
  // A context ends; null: unknown which. Objects that are not known to live on are no longer compared.
  void context_ends(CUcontext context);

  // The live object that holds `address`, if it may be copied at any time.
  std::optional<Allocation> find(std::uint64_t address) const;
  // Whether an address may point to live memory, including memory that may have gone with a context: its context is
  // only assumed to be the one current at allocation, and the driver may refuse to end one.
  bool may_hold(std::uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  MemoryMap map_;
  MemoryMap gone_;  // maybe
};

// Whether memory of this kind can be copied as long as it is allocated. A mapping need not be accessible, a graph's
// memory exists only while the graph runs, registered and external memory may be another device's.
bool can_be_copied(MemoryKind memory);

}  // namespace nimble::shim
