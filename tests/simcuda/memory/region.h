// Addresses of the simulated device: one reserved range of the process's own memory, carved into allocations. Addresses
// of device memory are thereby told from any other at a glance. Guarded by the driver's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace simcuda {

class Region {
 public:
  static constexpr std::uint64_t kAlignment = 512;  // of every allocation, as on real devices
  static constexpr std::uint64_t kGap = 512;        // never allocated, so that running off an end is noticed

  // Where the range is to begin, before anything is taken: it goes around what was taken there.
  void begin_at(std::uint64_t address) { wished_ = address; }
  // 0 where there is no such range. The memory is readable and writable unless `reserve_only`.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t alignment = kAlignment, bool reserve_only = false);
  // Reserves only addresses, at a requested free place; whether that succeeded.
  bool take_at(std::uint64_t address, std::uint64_t bytes);
  // Of either.
  void give_back(std::uint64_t address, std::uint64_t bytes);

  bool contains(std::uint64_t address) const {
    if (address - begin_ < size_) return true;
    const auto after = wanted_.upper_bound(address);
    return after != wanted_.begin() && address - std::prev(after)->first < std::prev(after)->second;
  }

 private:
  bool open();
  bool make_usable(std::uint64_t end);

  std::uint64_t begin_ = 0, size_ = 0, wished_ = 0;
  std::map<std::uint64_t, std::uint64_t> wanted_;              // begin -> bytes, outside that range
  std::uint64_t usable_end_ = 0;                               // up to here pages may be touched
  std::map<std::uint64_t, std::uint64_t> free_;                // begin -> bytes
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // (bytes, begin)
};

}  // namespace simcuda
