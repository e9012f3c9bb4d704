// Which launch shapes the driver has accepted for which kernels: it may refuse others, and the program needs the error
// at once.
//
// Remembers a bounded number, each in the slot of its hash. Not synchronised: the replayer's lock guards it. Allocates
// nothing once built.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble {

class TakenShapes {
 public:
  TakenShapes() : taken_(std::size_t{1} << 12) {}

  // Whether the driver has accepted a launch of the kernel with this block shape and shared memory, and the grid is
  // within its known limits.
  bool has(const Call& call) const {
    const std::uint64_t shape = hash(call);
    return taken_[shape % taken_.size()] == shape && call.launch.grid[0] <= kMostBlocks[0] &&
           call.launch.grid[1] <= kMostBlocks[1] && call.launch.grid[2] <= kMostBlocks[2];
  }
  // The driver has accepted the launch, or refused it.
  void answered(const Call& call, bool taken) {
    const std::uint64_t shape = hash(call);
    std::uint64_t& known = taken_[shape % taken_.size()];
    if (taken) {
      known = shape;
    } else if (known == shape) {
      known = 0;
    }
  }
  void forget() { std::ranges::fill(taken_, 0); }

 private:
  // Limits of a grid (CUDA C++ Programming Guide, technical specifications per compute capability).
  static constexpr std::array<std::uint32_t, 3> kMostBlocks = {0x7fffffff, 65535, 65535};

  // Covers everything that the driver may refuse, except the grid. Never 0.
  static std::uint64_t hash(const Call& call) {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(call.launch.function);
    for (const std::uint64_t part :
         {call.launch.block[0], call.launch.block[1], call.launch.block[2], call.launch.shared_bytes}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return std::max<std::uint64_t>(hash, 1);
  }

  std::vector<std::uint64_t> taken_;  // by hash modulo the size
};

}  // namespace nimble
