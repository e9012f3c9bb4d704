// Whether memory may have come near an address since an earlier look: a number for each region of the address space,
// which changes when memory comes there. An address that pointed nowhere still does while the number is the same.
//
// Any thread; no locks. A thread that later learns of the memory, or of the code that brought it, sees the change.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace nimble {

class Nearby {
 public:
  // There is new memory. Size 0: only its begin is known.
  void came(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t first = address >> kNear, last = (address + (size ? size - 1 : 0)) >> kNear;
    if (last - first >= kRegions) return may_have_come();
    for (std::uint64_t region = first; region <= last; ++region)
      near_[region % kRegions].fetch_add(1, std::memory_order_release);
  }
  // There may be new memory anywhere: code was loaded, which may have variables.
  void may_have_come() { anywhere_.fetch_add(1, std::memory_order_release); }

  // Never 0.
  std::uint64_t state(std::uint64_t address) const {
    return anywhere_.load(std::memory_order_acquire) << 32 |
           near_[(address >> kNear) % kRegions].load(std::memory_order_acquire);
  }

 private:
  static constexpr unsigned kNear = 28;               // 256 MiB: memory within this distance is near
  static constexpr std::uint64_t kRegions = 1 << 12;  // regions with the same index modulo this share a number

  std::atomic<std::uint64_t> anywhere_{1};
  std::array<std::atomic<std::uint32_t>, kRegions> near_{};
};

}  // namespace nimble
