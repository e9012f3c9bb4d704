// Finds possible pointers in a copy from the host: words that point where memory was allocated.
//
// Kernels that read tables of pointers touch what these point to, which no parameter shows. Any thread; no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble::shim {

// From the lowest address that was ever allocated to the highest. Only grows.
class AddressBounds {
 public:
  void add(std::uint64_t address, std::uint64_t size) {
    lower(begin_, address);
    if (size != 0) raise(end_, address + size);
  }
  std::uint64_t begin() const { return begin_.load(std::memory_order_relaxed); }
  std::uint64_t end() const { return end_.load(std::memory_order_relaxed); }

 private:
  static void lower(std::atomic<std::uint64_t>& bound, std::uint64_t value) {
    std::uint64_t now = bound.load(std::memory_order_relaxed);
    while (value < now && !bound.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
    }
  }
  static void raise(std::atomic<std::uint64_t>& bound, std::uint64_t value) {
    std::uint64_t now = bound.load(std::memory_order_relaxed);
    while (value > now && !bound.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
    }
  }
  std::atomic<std::uint64_t> begin_{~std::uint64_t{0}}, end_{0};
};

// Copies are scanned up to this size, which takes some 30 ms, and up to this number of words found.
inline constexpr std::uint64_t kMostPayload = std::uint64_t{256} << 20;
inline constexpr std::size_t kMostWords = 8192;

// Appends those words among `size` bytes, which are copied to `destination`, that point into the range. False if there
// is too much to scan, or to keep.
bool find_words(const void* bytes, std::uint64_t size, std::uint64_t destination, const AddressBounds& range,
                std::vector<TraceWord>& found);

}  // namespace nimble::shim
