// The allocations that an executable graph's nodes name, and whether they are still what they were when it was
// analyzed.
//
// Nodes were taken to reach no further than the allocation that they name a byte of. That one of them is released says
// nothing yet: it may be the program's, of which a node only names the end, or what was left in a parameter. Whoever is
// there later reaches no further than what is there then, so what was apart stays apart, unless parts of two of them
// come to lie in one allocation. (Live memory cannot be part of a new allocation: both have been released before.) Nor
// may anything but memory of the device's own come there, such as a mapping: what lies in that may lie elsewhere, too.
//
// Words of the nodes' parameters that were taken to lead nowhere must go on doing so: no memory of any kind may come
// where they point. (Address space may have been reserved for it, or host memory be registered.)
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
  // The words that look like addresses and lead to none of them, in any order.
  void name_stray(std::vector<std::uint64_t> words);

  // The call releases memory. Whether any of them goes, or a part of one.
  bool release(const Call& call);
  // Nobody can tell which of them go.
  void release_all();
  // The call has allocated memory. Whether nodes may meet in it that were apart.
  bool brings_together(const Call& call) const;
  // The call has allocated memory. Whether a word that led nowhere leads there, or just beside it.
  bool leads_to(const Call& call) const;

 private:
  struct Allocation {
    std::uint64_t begin = 0, end = 0;
    bool went = false;  // for good: what comes to lie there is another one
  };

  bool has_stray(std::uint64_t first, std::uint64_t last) const;
  template <class Visit>
  static void each_in(auto& allocations, const Call& call, const Visit& visit);

  std::vector<Allocation> allocations_;  // ascending, without overlap
  std::vector<std::uint64_t> stray_;     // ascending
};

}  // namespace nimble::shim
