// A small random number generator (SplitMix64), so that a seed means the same on every machine and library.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace digits {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // From [-1, 1), in steps of 2^-23.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

  // From 0 to bound - 1. The bias of the modulo is far below one in 2^40 for the bounds used here.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace digits
