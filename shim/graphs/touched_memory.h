// The allocations that an executable graph's nodes name, and whether they are still what they were when it was
// analyzed.
//
// Nodes were taken to reach no further than the allocation that they name a byte of. That one of them is released says
// nothing yet: it may be the program's, of which a node only names the end, or what was left in a parameter. Whoever is
// there later reaches no further than what is there then, so what was apart stays apart, unless parts of two of them
// come to lie in one allocation. (Live memory cannot be part of a new allocation: both have been released before.) Nor
// may anything but memory of the device's own come there, such as a mapping: what lies in that may lie elsewhere, too.
//
// Its owner has a lock.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/call.h"
#include "nimble/trace.h"

namespace nimble::shim {

class TouchedMemory {
 public:
  // In any order.
  void name(std::vector<TraceProbe::Range> allocations);

  // The call releases memory. Whether any of them goes, or a part of one.
  bool release(const Call& call);
  // The call has allocated memory. Whether nodes may meet in it that were apart.
  bool brings_together(const Call& call) const;

 private:
  struct Allocation {
    std::uint64_t begin = 0, end = 0;
    bool went = false;  // for good: what comes to lie there is another one
  };

  template <class Visit>
  static void each_in(auto& allocations, const Call& call, const Visit& visit);

  std::vector<Allocation> allocations_;  // ascending, without overlap
};

}  // namespace nimble::shim
