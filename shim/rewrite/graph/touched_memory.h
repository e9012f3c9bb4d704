// The allocations that an executable graph's nodes name, and whether they are still what they were when it was
// analyzed.
//
// The analysis assumed that nodes stay within the allocations that they name a byte of. The release of one means
// nothing yet: a node may only name its end, or have a stale word in a parameter. Later accesses there stay within
// whatever is allocated then, so separate allocations stay separate, unless parts of two of them come to lie in one new
// allocation. (Live memory cannot be part of a new allocation: both were released before.) Nor may anything but the
// device's own memory come there, such as a mapping: mapped memory may have other addresses, too.
//
// Parameter words that were assumed to point nowhere must continue to: no memory that the program can have meant may
// come to where they point. (The program can have reserved the address space, or registered host memory; the memory may
// have been there before, and been released. But it could not know where the driver would first put device memory:
// pairs of small numbers look like addresses of its pools, and these grow.)
//
// Its owner has a lock.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/trace.h"

namespace nimble::shim {

class TouchedMemory {
 public:
  // In any order.
  void name(std::vector<TraceProbe::Range> allocations);
  // The words that look like addresses but point into none of them; and those of them that may be addresses of earlier
  // memory. In any order.
  void name_stray(std::vector<std::uint64_t> words, std::vector<std::uint64_t> known);

  // The call releases memory. Whether that is any of them, or part of one.
  bool release(const Call& call);
  // Unknown memory is released.
  void release_all();
  // The call has allocated memory. Whether it may join allocations that were separate.
  bool brings_together(const Call& call) const;
  // The call has allocated memory. Whether a word that pointed nowhere may mean that, or memory next to it.
  bool leads_to(const Call& call) const;

 private:
  struct Allocation {
    std::uint64_t begin = 0, end = 0;
    bool went = false;  // for good: later memory there is another allocation
  };

  template <class Visit>
  static void each_in(auto& allocations, const Call& call, const Visit& visit);

  std::vector<Allocation> allocations_;       // ascending, without overlap
  std::vector<std::uint64_t> stray_, known_;  // ascending
};

}  // namespace nimble::shim
