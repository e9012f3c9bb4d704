// The values that an op of a step is submitted with. The op's kind decides which fields are meaningful.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "nimble/internal/call.h"

namespace nimble {

struct OpValues {
  CUfunction function = nullptr;
  bool is_kernel_handle = false;
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;
  Region dst, src;
  std::uint64_t width = 0, height = 1;
  std::uint32_t value = 0, element = 1;
  CUevent event = nullptr;
};

}  // namespace nimble
