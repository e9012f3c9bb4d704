// Where memory has ever been that the program was told of. What looks like an address and lies elsewhere the program
// cannot have: where the driver puts memory nobody knows before. (Where somebody else does, as with mappings and memory
// of the host that is registered, anything may be known.)
//
// By whole pages, so that there are few ranges to keep, and more is taken to be known rather than less. Grows only. One
// lock, never held while the driver is called. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace nimble::shim {

class KnownAddresses {
 public:
  // There is new memory. A size of 0: it is not known. Where this process has no memory to keep that, all is known.
  void came(std::uint64_t address, std::uint64_t size) noexcept;
  // Whether the program may have it as an address of some memory, or of what lies just beside that.
  bool holds(std::uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // by the first page: the one behind; apart from each other
  bool all_ = false;
};

}  // namespace nimble::shim
