// Random numbers that are the same everywhere (SplitMix64); the standard's distributions are not.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace nimble::oracle {

class Random {
 public:
  // Neighbouring seeds must not give parts of one sequence.
  explicit Random(std::uint64_t seed) : state_(seed) { state_ = next() ^ (seed << 32); }

  std::uint64_t next() {
    std::uint64_t x = (state_ += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  // 0 to `bound` - 1.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((next() >> 32) * bound >> 32); }
  std::uint32_t between(std::uint32_t first, std::uint32_t last) { return first + below(last - first + 1); }
  bool percent(std::uint32_t chance) { return below(100) < chance; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *std::next(list.begin(), below(static_cast<std::uint32_t>(list.size())));
  }

 private:
  std::uint64_t state_;
};

}  // namespace nimble::oracle
