// Which words of a launch's parameters look like addresses and lead nowhere (nimble/reach.h): so that the analyzer can
// tell sizes and rubbish from pointers to memory that no trace shows.
//
// Asked for every launch while recording, from any thread. A thread remembers for a while what it was told, since the
// same pointers come again and again: that an address leads somewhere it believes for good, which is at worst a pity;
// that it leads nowhere, until the program makes a call that may bring memory about.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "nimble/call.h"
#include "nimble/reach.h"

namespace nimble::shim {

class StrayWords {
 public:
  // Once, before the first question, when the driver is initialised.
  void start(CallContext& context);

  // The byte offsets of such words in the packed parameters, ascending. `params` is the packed buffer. The list is the
  // thread's own, good until the thread asks again.
  const std::vector<std::uint32_t>& of(const FunctionInfo& function, const std::uint8_t* params);

  // The program has called for something that may be memory.
  void memory_may_have_come() { memory_.fetch_add(1, std::memory_order_relaxed); }

 private:
  bool nowhere(std::uint64_t word);

  Reach reach_;
  std::atomic<std::uint64_t> memory_{1};
};

}  // namespace nimble::shim
