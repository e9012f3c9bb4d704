// Which words of a launch's parameters look like addresses and lead nowhere (nimble/internal/address_probe.h): so that
// the analyzer can tell sizes and rubbish from pointers to memory that no trace shows.
//
// Asked for every launch while recording, from any thread. The driver takes up to a microsecond to answer, and a launch
// may have dozens of such words, so a thread remembers what it was told: that an address leads somewhere it believes
// for good, which is at worst a pity; that it leads nowhere, until memory comes near it, or code is loaded, which may
// bring variables along anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "nimble/internal/address_probe.h"
#include "nimble/internal/call.h"
#include "nimble/internal/nearby.h"

namespace nimble::shim {

class StrayWords {
 public:
  // Once, when the driver is initialised. Until it has returned, other threads learn nothing.
  void start(CallContext& context);

  // The byte offsets of such words in the packed parameters, ascending. `params` is the packed buffer. The list is the
  // thread's own, good until the thread asks again.
  const std::vector<std::uint32_t>& of(const FunctionInfo& function, const std::uint8_t* params);

  // The program has new memory there, or may have new memory anywhere.
  void memory_has_come(std::uint64_t address, std::uint64_t size) { nearby_.came(address, size); }
  void memory_may_have_come() { nearby_.may_have_come(); }

 private:
  bool nowhere(std::uint64_t word);

  Reach known_reach_;
  std::atomic<const Reach*> reach_{nullptr};  // known_reach_ once it is ready
  Nearby nearby_;
};

}  // namespace nimble::shim
