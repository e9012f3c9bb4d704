// Constant bank 0: what the driver puts there beside the parameters. A pure function.
#pragma once

#include <cstdint>

namespace nimble::code::sass {

// By which words a kernel finds memory of its own: where its stack begins, and the generic addresses of local memory
// and of its parameters. Measured: what kernels that need these read (nvcc 13.0, sm_75 to sm_121).
inline constexpr std::int64_t kNowhere = -1;  // no kernel was seen to

struct Bank0 {
  std::int64_t stack = kNowhere, local = kNowhere, params = kNowhere;
};

inline Bank0 bank0_of(unsigned arch) {
  if (arch >= 100) return {0x37c, 0x2f8, 0x348};
  if (arch >= 90) return {0x28, 0x20, 0x198};
  return {0x28, 0x20, kNowhere};
}

}  // namespace nimble::code::sass
