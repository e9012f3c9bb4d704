#include "shim/rewrite/program_memory/known_addresses.h"

#include <algorithm>
#include <iterator>

namespace nimble::shim {

namespace {

constexpr unsigned kPage = 16;          // bits
constexpr std::uint64_t kBeside = 256;  // bytes: as analyzer/memory/objects.h has it

}  // namespace

void KnownAddresses::came(std::uint64_t address, std::uint64_t size) noexcept {
  std::uint64_t begin = (address - std::min(address, kBeside)) >> kPage,
                end = ((address + size + kBeside) >> kPage) + 1;
  const std::lock_guard lock(mutex_);
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  if (at != ranges_.end() && at->first <= begin && at->second >= end) return;
  for (; at != ranges_.end() && at->first <= end; at = ranges_.erase(at)) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
  }
  try {
    ranges_[begin] = end;
  } catch (...) {
    all_ = true;
  }
}

bool KnownAddresses::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(address >> kPage);
  return all_ || (after != ranges_.begin() && address >> kPage < std::prev(after)->second);
}

}  // namespace nimble::shim
