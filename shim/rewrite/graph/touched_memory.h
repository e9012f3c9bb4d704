// The allocations that an executable graph's nodes name, and whether they are still what they were when it was
// analyzed.
//
// Nodes were taken to reach no further than the allocation that they name a byte of. That one of them is released says
// nothing yet: it may be the program's, of which a node only names the end, or what was left in a parameter. Whoever is
// there later reaches no further than what is there then, so what was apart stays apart, unless parts of two of them
// come to lie in one allocation. (Live memory cannot be part of a new allocation: both have been released before.) Nor
// may anything but memory of the device's own come there, such as a mapping: what lies in that may lie elsewhere, too.
//
// Words of the nodes' parameters that were taken to lead nowhere must go on doing so: no memory may come where they
// point that the program can have meant. (Address space may have been reserved for it, or host memory be registered; it
// may have been there before, and have been released. But where the driver first puts memory of the device's nobody
// knew before: pairs of small numbers look like addresses of its pools, and these grow.)
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
  // The words that look like addresses and lead to none of them; and those among them that may be addresses of memory
  // that has been. In any order.
  void name_stray(std::vector<std::uint64_t> words, std::vector<std::uint64_t> known);

  // The call releases memory. Whether any of them goes, or a part of one.
  bool release(const Call& call);
  // Nobody can tell which of them go.
  void release_all();
  // The call has allocated memory. Whether nodes may meet in it that were apart.
  bool brings_together(const Call& call) const;
  // The call has allocated memory. Whether a word that led nowhere may mean that, or what is just beside it.
  bool leads_to(const Call& call) const;

 private:
  struct Allocation {
    std::uint64_t begin = 0, end = 0;
    bool went = false;  // for good: what comes to lie there is another one
  };

  template <class Visit>
  static void each_in(auto& allocations, const Call& call, const Visit& visit);

  std::vector<Allocation> allocations_;       // ascending, without overlap
  std::vector<std::uint64_t> stray_, known_;  // ascending
};

}  // namespace nimble::shim
