// Where memory that the program was told of has ever been. A word that looks like an address elsewhere cannot be one,
// since no one knows beforehand where the driver puts memory. (Where something else places it, as with mappings and
// registered host memory, any address may be known.)
//
// By whole pages, so that there are few ranges to keep, and addresses err towards known. Only grows. One lock, never
// held while the driver is called. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace nimble::shim {

class KnownAddresses {
 public:
  // There is new memory. Size 0: unknown. If memory to store that runs out, every address counts as known.
  void came(std::uint64_t address, std::uint64_t size) noexcept;
  // Whether the program may know it as an address of some memory, or next to some.
  bool holds(std::uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // first page to the page after the last; disjoint
  bool all_ = false;
};

}  // namespace nimble::shim
