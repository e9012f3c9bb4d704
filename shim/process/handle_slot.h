// The slot of a handle in a small table. Handles are addresses of objects or multiples of some size: modulo the table's
// size, many would share few slots.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace nimble::shim {

// `slots` is a power of two.
constexpr std::size_t handle_slot(std::uint64_t handle, std::size_t slots) {
  return static_cast<std::size_t>(handle * 0x9e3779b97f4a7c15u >> (64 - std::countr_zero(slots)));  // Fibonacci hashing
}

}  // namespace nimble::shim
