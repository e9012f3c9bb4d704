// Constant bank 0: what the driver puts there beside the parameters. A pure function.
#pragma once

#include <cstdint>

namespace nimble::code::sass {

// By which words a kernel finds memory of its own: where its stack begins, and the generic addresses of local memory,
// of its parameters, and of shared memory (later ones ask a special register for its upper half). Measured: what
// kernels that need these read (nvcc 13.0, sm_75 to sm_121). Kernels that nvcc did not compile may know where the
// bank itself begins: those of cublasLt (nvjet) read it there, and their launches' tensor maps are where that leads
// (sm_90).
inline constexpr std::int64_t kNowhere = -1;  // no kernel was seen to

struct Bank0 {
  std::int64_t stack = kNowhere, local = kNowhere, params = kNowhere, shared = kNowhere, bank = kNowhere;
};

// Special registers that hold the upper halves of such addresses; the lower half is an offset.
inline constexpr std::uint64_t kUpperHalfOfLocal = 0x2e, kUpperHalfOfShared = 0x2f;  // SR_LWINHI, SR_SWINHI

inline Bank0 bank0_of(unsigned arch) {
  if (arch >= 100) return {0x37c, 0x2f8, 0x348, kNowhere, kNowhere};
  if (arch >= 90) return {0x28, 0x20, 0x198, kNowhere, 0xc0};
  return {0x28, 0x20, kNowhere, 0x18, kNowhere};
}

}  // namespace nimble::code::sass
