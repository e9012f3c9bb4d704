// Small helpers around XXH3, for values that are compared but never written to disk. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace nimble::analyzer {

// Spreads a 64-bit value over 64 bits (the finalizer of SplitMix64).
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// XXH3-64 of text.
std::uint64_t hash_text(std::string_view text);

// Hashes a sequence of values.
class Hasher {
 public:
  void add(std::uint64_t value) { state_ = mix(state_ ^ mix(value)); }
  void add(std::string_view text) { add(hash_text(text)); }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace nimble::analyzer
