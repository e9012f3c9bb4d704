// Which words of a launch's parameters look like addresses and lead nowhere (nimble/reach.h): so that the analyzer can
// tell sizes and rubbish from pointers to memory that no trace shows.
//
// Asked for every launch while recording, from any thread. The driver takes up to a microsecond to answer, and a launch
// may have dozens of such words, so a thread remembers what it was told: that an address leads somewhere it believes
// for good, which is at worst a pity; that it leads nowhere, until memory comes near it, or code is loaded, which may
// bring variables along anywhere.
#pragma once

#include <array>
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

  // The program has new memory there, or may have new memory anywhere.
  void memory_has_come(std::uint64_t address, std::uint64_t size);
  void memory_may_have_come() { anywhere_.fetch_add(1, std::memory_order_release); }

 private:
  static constexpr unsigned kNear = 28;               // 256 MiB: memory that is nearer is near
  static constexpr std::uint64_t kRegions = 1 << 12;  // counters; regions of the same number share one

  bool nowhere(std::uint64_t word);
  // Changes whenever memory comes near the address.
  std::uint64_t state_at(std::uint64_t address) const;

  Reach reach_;
  std::atomic<std::uint64_t> anywhere_{1};
  std::array<std::atomic<std::uint32_t>, kRegions> near_{};
};

}  // namespace nimble::shim
