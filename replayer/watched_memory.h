// The memory that work in an order of ours touches, for a look without a lock at whether somebody else's op may touch
// it, too.
//
// One thread at a time sets it, under its owner's lock; any may ask meanwhile, and is then told "yes" where the ranges
// change at that moment: who asks looks again, under the lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace nimble {

class WatchedMemory {
 public:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    bool written = false;  // else it is read only
  };

  explicit WatchedMemory(std::size_t most) : begins_(most), ends_(most) {}

  std::size_t most() const { return begins_.size(); }

  // Ascending, without overlap, at most most().
  void set(std::span<const Range> ranges) {
    version_.fetch_add(1, std::memory_order_seq_cst);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      begins_[i].store(ranges[i].begin, std::memory_order_relaxed);
      ends_[i].store(ranges[i].end << 1 | (ranges[i].written ? 1 : 0), std::memory_order_relaxed);
    }
    count_.store(ranges.size(), std::memory_order_relaxed);
    version_.fetch_add(1, std::memory_order_seq_cst);
  }

  // Whether an op that reads, or also writes, these bytes may meet the work there.
  bool meets(std::uint64_t address, std::uint64_t bytes, bool writes) const {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version & 1) return true;
    const std::size_t count = count_.load(std::memory_order_relaxed);
    const auto first = std::partition_point(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(count),
                                            [&](const auto& end) { return at(end) >> 1 <= address; });
    bool found = false;
    for (auto i = static_cast<std::size_t>(first - ends_.begin()); !found && i < count; ++i) {
      const std::uint64_t begin = at(begins_[i]);
      if (begin > address && begin - address >= bytes) break;
      found = writes || (at(ends_[i]) & 1);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    return found || version_.load(std::memory_order_relaxed) != version;
  }

 private:
  static std::uint64_t at(const std::atomic<std::uint64_t>& value) { return value.load(std::memory_order_relaxed); }

  std::atomic<std::uint64_t> version_{0};  // odd while the ranges change
  std::atomic<std::size_t> count_{0};
  std::vector<std::atomic<std::uint64_t>> begins_, ends_;  // of an end: twice, and whether the range is written
};

}  // namespace nimble
