// Memory of the emulator: words of 32 bits that come to be when they are first looked at, anywhere in 64 bits of
// addresses. Objects lie so far apart that arithmetic within one does not lead into another. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace nimble::code::emulator {

inline std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

class Memory {
 public:
  // With `small`, what lies there at first are small numbers; else some are any.
  Memory(std::uint64_t seed, bool small) : seed_(seed), small_(small) {}

  std::uint32_t load(std::uint64_t word) const {
    const auto found = words_.find(word);
    return found != words_.end() ? found->second : first(word);
  }
  void store(std::uint64_t word, std::uint32_t value) { words_[word] = value; }
  const std::unordered_map<std::uint64_t, std::uint32_t>& written() const { return words_; }

 private:
  std::uint32_t first(std::uint64_t word) const {
    const std::uint64_t random = mixed(seed_ ^ word * 0xd1342543de82ef95u);
    const unsigned kind = random >> 56 & 15;
    if (kind < 9 || (small_ && kind < 12)) return static_cast<std::uint32_t>(random % 64);
    if (kind < 12 || small_) return 0;
    return kind == 12 ? 0xffffffffu : static_cast<std::uint32_t>(random);
  }

  const std::uint64_t seed_;
  const bool small_;
  std::unordered_map<std::uint64_t, std::uint32_t> words_;
};

// Where objects lie: an address belongs to the object whose base is within 2^36 bytes of it. Their addresses' lower
// halves are far from each other, too.
class Objects {
 public:
  static constexpr std::uint64_t kReach = std::uint64_t{1} << 36;
  // Nearer than this is no address that has one half from one object, and the other from another.
  static constexpr std::uint64_t kNear = std::uint64_t{1} << 20;

  explicit Objects(std::uint64_t seed) : seed_(seed) {}

  // Bases are far from each other, in an order that is the seed's.
  std::uint64_t add() {
    for (;;) {
      const std::uint64_t base = (mixed(seed_ += 3) >> 4 | std::uint64_t{1} << 58) & ~std::uint64_t{0xff};
      if (of(base, 4 * kReach) || has_half_like(base)) continue;
      bases_.push_back(base);
      return base;
    }
  }
  std::optional<std::uint32_t> of(std::uint64_t address, std::uint64_t reach = kReach) const {
    for (std::uint32_t i = 0; i < bases_.size(); ++i)
      if (address - bases_[i] + reach < 2 * reach) return i;
    return std::nullopt;
  }
  std::uint64_t base(std::uint32_t object) const { return bases_[object]; }
  std::size_t size() const { return bases_.size(); }

 private:
  bool has_half_like(std::uint64_t base) const {
    if (bases_.size() > 48) return false;  // there is no more room
    for (const std::uint64_t each : bases_)
      if (static_cast<std::uint32_t>(base - each + 32 * kNear) < 64 * kNear) return true;
    return false;
  }

  std::uint64_t seed_;
  std::vector<std::uint64_t> bases_;
};

}  // namespace nimble::code::emulator
