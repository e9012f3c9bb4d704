// Hashes of all windows of a sequence, each in constant time.
//
// Polynomial hash modulo 2^61 - 1, built once in linear time. Equal windows have equal hashes; unequal ones have equal
// hashes with a probability of about n / 2^61. Owns its table; immutable once built.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nimble::analyzer {

class RollingHash {
 public:
  explicit RollingHash(std::span<const std::uint64_t> values) : prefix_(values.size() + 1), power_(values.size() + 1) {
    power_[0] = 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      prefix_[i + 1] = add(multiply(prefix_[i], kBase), values[i] % kModulus);
      power_[i + 1] = multiply(power_[i], kBase);
    }
  }

  std::uint64_t window(std::size_t begin, std::size_t length) const {
    return add(prefix_[begin + length], kModulus - multiply(prefix_[begin], power_[length]));
  }

 private:
  static constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61) - 1;
  static constexpr std::uint64_t kBase = 0x1b873593cc9e2d51u % kModulus;

  static std::uint64_t add(std::uint64_t a, std::uint64_t b) {
    std::uint64_t sum = a + b;
    return sum >= kModulus ? sum - kModulus : sum;
  }
  static std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
    unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return add(static_cast<std::uint64_t>(product & kModulus), static_cast<std::uint64_t>(product >> 61));
  }

  std::vector<std::uint64_t> prefix_, power_;
};

}  // namespace nimble::analyzer
