#include "replayer/onlookers/watched_memory.h"

#include <algorithm>
#include <bit>
#include <new>

namespace nimble {

namespace {

// Joins those with the smallest gaps between them, until half of the room is free again.
void make_room(std::vector<MemoryRange>& ranges) {
  constexpr std::size_t kLeft = WatchedMemory::kMostRanges / 2;
  std::vector<std::uint64_t> gaps;
  gaps.reserve(ranges.size());
  for (std::size_t i = 1; i < ranges.size(); ++i) gaps.push_back(ranges[i].begin - ranges[i - 1].end);
  const auto widest = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() - kLeft);
  std::ranges::nth_element(gaps, widest);
  const std::uint64_t most = *widest;  // at most so many are wider
  std::size_t kept = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin - ranges[kept].end <= most) {
      ranges[kept].end = ranges[i].end;
    } else {
      ranges[++kept] = ranges[i];
    }
  }
  ranges.resize(kept + 1);
}

}  // namespace

WatchedMemory::WatchedMemory() { next_.reserve(2 * kMostRanges); }

bool WatchedMemory::has(std::uint64_t begin, std::uint64_t end) const {
  std::size_t low = 0, high = count_.load(std::memory_order_acquire);
  while (low < high) {  // the first that ends after `begin`
    const std::size_t middle = (low + high) / 2;
    if (ranges_[middle].end.load(std::memory_order_acquire) <= begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count_.load(std::memory_order_acquire) && low < kMostRanges &&
         ranges_[low].begin.load(std::memory_order_acquire) < end;
}

bool WatchedMemory::covers(const MemoryView& memory) const {
  if (kinds().anything) return true;
  if (memory.anything || (memory.variables && !kinds().variables)) return false;
  return std::ranges::all_of(memory.ranges, [&](const MemoryRange& range) {
    const std::size_t count = this->count();
    const auto* const end = ranges_.begin() + count;
    const auto* const found =
        std::partition_point(ranges_.begin(), end, [&](const Range& each) { return each.end.load() <= range.begin; });
    return found != end && found->begin.load() <= range.begin && range.end <= found->end.load();
  });
}

void WatchedMemory::load(std::vector<MemoryRange>& ranges) const {
  for (std::size_t i = 0; i < count(); ++i) ranges.push_back({ranges_[i].begin.load(), ranges_[i].end.load(), true});
}

Touched WatchedMemory::add(const MemoryView& memory) {
  Touched added;
  if (covers(memory)) return added;
  const bool variables = kinds().variables || memory.variables;
  added.variables = memory.variables && !kinds().variables;
  try {
    next_.assign(memory.ranges.begin(), memory.ranges.end());
    for (MemoryRange& range : next_) range.written = true;
    load(next_);
    sort_and_merge(next_);
    if (next_.size() > kMostRanges) make_room(next_);
    // Each of the former ranges lies in one of these: what is left between them is new.
    std::size_t former = 0;
    for (const MemoryRange& range : next_) {
      std::uint64_t from = range.begin;
      for (; former < count() && ranges_[former].begin.load() < range.end; ++former) {
        if (from < ranges_[former].begin.load()) added.add({from, ranges_[former].begin.load(), true});
        from = ranges_[former].end.load();
      }
      if (from < range.end) added.add({from, range.end, true});
    }
    added.anything = added.anything || memory.anything;
    publish(next_, variables, memory.anything);
  } catch (const std::bad_alloc&) {
    next_.clear();
    publish(next_, true, true);
    added.anything = true;
  }
  return added;
}

void WatchedMemory::publish(const std::vector<MemoryRange>& ranges, bool variables, bool anything) {
  const Version version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_seq_cst);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    ranges_[i].begin.store(ranges[i].begin, std::memory_order_release);
    ranges_[i].end.store(ranges[i].end, std::memory_order_release);
  }
  kinds_.store({.ranges = !ranges.empty(), .variables = variables, .anything = anything}, std::memory_order_release);
  count_.store(ranges.size(), std::memory_order_release);
  publish_parts(ranges);
  version_.store(version + 2, std::memory_order_seq_cst);
}

void WatchedMemory::publish_parts(const std::vector<MemoryRange>& ranges) {
  std::array<std::uint64_t, kParts / 64> parts{};
  const std::uint64_t lowest = ranges.empty() ? 0 : ranges.front().begin;
  const std::uint64_t bytes = ranges.empty() ? 1 : std::max<std::uint64_t>(ranges.back().end - lowest, 1);
  const int shift = std::bit_width((bytes - 1) / kParts);
  for (const MemoryRange& range : ranges) {
    if (range.begin >= range.end) continue;
    const std::uint64_t last = (range.end - 1 - lowest) >> shift;
    for (std::uint64_t part = (range.begin - lowest) >> shift; part <= last; part = part / 64 * 64 + 64) {
      std::uint64_t all = ~std::uint64_t{0} << (part % 64);
      if (last / 64 == part / 64) all &= ~std::uint64_t{0} >> (63 - last % 64);
      parts[part / 64] |= all;
    }
  }
  lowest_.store(lowest, std::memory_order_release);
  part_shift_.store(static_cast<std::uint32_t>(shift), std::memory_order_release);
  for (std::size_t i = 0; i < parts.size(); ++i) parts_[i].store(parts[i], std::memory_order_release);
}

}  // namespace nimble
