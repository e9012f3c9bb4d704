// The program's live allocations, as far as a probe may read them. Thread-safe.
//
// It follows the calls as they come in, so it may know less than the trace will tell: what it does not know is not
// compared, and the trace says of each launch what was.
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
  // The program is about to free it: from now on nobody reads it.
  void freed(const Call& call);
  // A context ends, as far as the call tells; null: nobody knows which. What is not known to live on is not compared
  // any more.
  void context_ends(CUcontext context);

  // The live object that holds `address`, where there is one that may be copied at any time.
  std::optional<Allocation> find(std::uint64_t address) const;
  // Whether an address may lead to what is alive: also to what may have gone with a context. Whose that was is what the
  // thread had as its context when it came, and an end may be refused.
  bool may_hold(std::uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  MemoryMap map_;
  MemoryMap gone_;  // maybe
};

// Whether memory of this kind is there for a copy as long as it is allocated. A mapping need not be accessible, a
// graph's memory exists only while the graph runs, registered and external memory may be another device's.
bool can_be_copied(MemoryKind memory);

}  // namespace nimble::shim
