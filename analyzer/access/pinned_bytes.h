// Pieces of a launch's packed parameters, each once, in the order in which they were added.
//
// A value. No errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace nimble::analyzer {

class PinnedBytes {
 public:
  using Piece = std::pair<std::uint32_t, std::uint32_t>;  // the first byte, and how many

  // No effect where it is there.
  void add(const Piece& piece) {
    if (known_.insert(key(piece)).second) pieces_.push_back(piece);
  }
  template <class Condition>
  void erase_if(const Condition& condition) {
    std::erase_if(pieces_, [&](const Piece& piece) {
      const bool goes = condition(piece);
      if (goes) known_.erase(key(piece));
      return goes;
    });
  }
  // All of them, which are none from then on.
  std::vector<Piece> take() {
    known_.clear();
    return std::exchange(pieces_, {});
  }

  const std::vector<Piece>& all() const { return pieces_; }
  bool empty() const { return pieces_.empty(); }

 private:
  static std::uint64_t key(const Piece& piece) { return std::uint64_t{piece.first} << 32 | piece.second; }

  std::vector<Piece> pieces_;
  std::unordered_set<std::uint64_t> known_;
};

}  // namespace nimble::analyzer
