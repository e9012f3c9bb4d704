// The memory that works use, as a filter: an op that touches none of it concerns no work, and learns so without a lock.
//
// Covers at least what the works use: ranges that lie close together become one where there is no room for all. Readers
// notice that it changed while they read (a seqlock; H. Boehm, "Can seqlocks get along with programming language memory
// models?", 2012): an answer holds as long as its version is the latest. Writers hold the lock of Onlookers. What
// memory is too short for counts as anything.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "replayer/onlookers/touched.h"

namespace nimble {

class WatchedMemory {
 public:
  static constexpr std::size_t kMostRanges = 1024;
  using Version = std::uint64_t;

  WatchedMemory();

  // --- Any thread, without a lock.

  Version version() const { return version_.load(std::memory_order_seq_cst); }
  // Whether answers that were given since version() said so are those of the latest version.
  bool is_latest(Version version) const { return version % 2 == 0 && this->version() == version; }
  bool has(std::uint64_t begin, std::uint64_t end) const;
  // Whether the byte may be: false for most that are not, without a search.
  bool may_have(std::uint64_t address) const {
    const std::uint64_t part =
        (address - lowest_.load(std::memory_order_acquire)) >> part_shift_.load(std::memory_order_acquire);
    return part < kParts && (parts_[part / 64].load(std::memory_order_acquire) >> (part % 64) & 1) != 0;
  }
  // What there is of it.
  struct alignas(4) Kinds {  // of a size that is read at once
    bool ranges = false, variables = false, anything = false, unused = false;
    bool none() const { return !ranges && !variables && !anything; }
  };
  Kinds kinds() const { return kinds_.load(std::memory_order_acquire); }

  // --- With the lock.

  // Whether all of that is watched.
  bool covers(const MemoryView& memory) const;
  // Watches this as well. Returns what it did not watch before.
  Touched add(const MemoryView& memory);
  // Watches only what `each` tells: a function that calls the one it is given with each MemoryView, all of which are
  // watched already.
  template <class Each>
  void keep_only(const Each& each);
  // Of how many ranges it is.
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  struct Range {
    std::atomic<std::uint64_t> begin{0}, end{0};
  };

  static constexpr std::size_t kParts = 2048;

  void load(std::vector<MemoryRange>& ranges) const;
  void publish(const std::vector<MemoryRange>& ranges, bool variables, bool anything);
  void publish_parts(const std::vector<MemoryRange>& ranges);

  std::atomic<Version> version_{0};  // odd while it changes
  std::atomic<std::size_t> count_{0};
  std::atomic<Kinds> kinds_{Kinds()};
  // From the lowest range on to the end of the highest, in equal parts: which of them have any memory that is watched.
  std::atomic<std::uint32_t> part_shift_{0};  // 2 to the power of this are the bytes of one
  std::atomic<std::uint64_t> lowest_{0};
  std::array<std::atomic<std::uint64_t>, kParts / 64> parts_{};
  std::array<Range, kMostRanges> ranges_;  // by address, without overlap
  std::vector<MemoryRange> next_;          // what comes next, while it is put together
};

template <class Each>
void WatchedMemory::keep_only(const Each& each) {
  bool variables = false, anything = false;
  next_.clear();
  each([&](const MemoryView& memory) {
    variables = variables || memory.variables;
    anything = anything || memory.anything;
    next_.insert(next_.end(), memory.ranges.begin(), memory.ranges.end());
  });
  sort_and_merge(next_);
  // Fewer and wider ranges would cover memory that was not watched so far, without telling the caller.
  if (next_.size() <= kMostRanges) publish(next_, variables, anything);
}

}  // namespace nimble
