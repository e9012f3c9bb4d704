// See region.h.
#include "tests/simcuda/memory/region.h"

#include <sys/mman.h>

#include <algorithm>

namespace simcuda {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kGrowth = std::uint64_t{64} << 20;
constexpr std::uint64_t kKeepResident = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

bool Region::open() {
  if (begin_ != 0) return true;
  // Address space only. Where even that is limited, a smaller device does.
  for (std::uint64_t size = std::uint64_t{512} << 30; size >= std::uint64_t{256} << 20; size /= 2) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = MAP_FAILED;
    if (wished_ != 0) memory = mmap(pointer(wished_), size, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory == MAP_FAILED) memory = mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
    if (memory == MAP_FAILED) continue;
    madvise(memory, size, MADV_DONTDUMP);
    begin_ = reinterpret_cast<std::uint64_t>(memory);
    size_ = size;
    usable_end_ = begin_;
    free_[begin_] = size_;
    by_size_.insert({size_, begin_});
    return true;
  }
  return false;
}

bool Region::make_usable(std::uint64_t end) {
  if (end <= usable_end_) return true;
  const std::uint64_t grown = std::min(round_up(end - begin_, kGrowth) + begin_, begin_ + size_);
  if (mprotect(pointer(usable_end_), grown - usable_end_, PROT_READ | PROT_WRITE) != 0) return false;
  usable_end_ = grown;
  return true;
}

std::uint64_t Region::take(std::uint64_t bytes, std::uint64_t alignment, bool reserve_only) {
  if (!open() || bytes > size_) return 0;
  alignment = std::max(alignment, reserve_only ? kPage : kAlignment);
  const std::uint64_t wanted = round_up(bytes, reserve_only ? kPage : kAlignment) + kGap;
  for (auto fit = by_size_.lower_bound({wanted, 0}); fit != by_size_.end(); ++fit) {
    const auto [size, begin] = *fit;
    const std::uint64_t address = round_up(begin, alignment);
    if (address + wanted > begin + size) continue;
    if (!make_usable(address + wanted)) return 0;
    by_size_.erase(fit);
    free_.erase(begin);
    if (address > begin) {
      free_[begin] = address - begin;
      by_size_.insert({address - begin, begin});
    }
    if (const std::uint64_t rest = begin + size - (address + wanted); rest != 0) {
      free_[address + wanted] = rest;
      by_size_.insert({rest, address + wanted});
    }
    return address;
  }
  return 0;
}

bool Region::take_at(std::uint64_t address, std::uint64_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
#if defined(__SANITIZE_THREAD__)
  // A program's own memory lies in here. The sanitizer takes any other address for a hint and replaces it by null,
  // which root can map.
  constexpr std::uint64_t kBegin = 0x7e8000000000, kEnd = 0x800000000000;
  if (address < kBegin || address >= kEnd || bytes > kEnd - address) return false;
#endif
  void* const memory = mmap(pointer(address), bytes, PROT_NONE, kFlags, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (memory != pointer(address)) {  // a system that does not know the flag
    munmap(memory, bytes);
    return false;
  }
  wanted_[address] = bytes;
  return true;
}

void Region::give_back(std::uint64_t address, std::uint64_t bytes) {
  if (const auto found = wanted_.find(address); found != wanted_.end()) {
    munmap(pointer(address), found->second);
    wanted_.erase(found);
    return;
  }
  const bool pages = address % kPage == 0 && bytes >= kKeepResident;
  if (pages) madvise(pointer(address), bytes / kPage * kPage, MADV_DONTNEED);
  std::uint64_t begin = address, size = round_up(bytes, kAlignment) + kGap;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    by_size_.erase({next->second, next->first});
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      size += previous->second;
      by_size_.erase({previous->second, previous->first});
      free_.erase(previous);
    }
  }
  free_[begin] = size;
  by_size_.insert({size, begin});
}

}  // namespace simcuda
