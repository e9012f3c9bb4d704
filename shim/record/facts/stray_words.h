// Which words of a launch's parameters look like addresses but point nowhere (nimble/internal/address_probe.h): so that
// the analyzer can tell sizes and garbage from pointers to memory that no trace shows.
//
// Called for every launch while recording, from any thread. The driver takes up to a microsecond to answer, and a
// launch may have dozens of such words, so each thread caches the answers: that an address points somewhere for good,
// which at worst loses precision; that it points nowhere, until memory is allocated near it, or code is loaded, which
// may place variables anywhere.
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
  // Once, when the driver is initialised. Until it has returned, other threads get no strays.
  void start(CallContext& context);

  // The byte offsets of such words in the packed parameters, ascending. `params` is the packed buffer. The list is
  // thread-local, valid until the thread's next call.
  const std::vector<std::uint32_t>& of(const FunctionInfo& function, const std::uint8_t* params);

  // The program has new memory there; or may have new memory anywhere.
  void memory_has_come(std::uint64_t address, std::uint64_t size) { nearby_.came(address, size); }
  void memory_may_have_come() { nearby_.may_have_come(); }

 private:
  bool nowhere(std::uint64_t word);

  Reach known_reach_;
  std::atomic<const Reach*> reach_{nullptr};  // known_reach_ once it is ready
  Nearby nearby_;
};

}  // namespace nimble::shim
