// When the GPU ran an op. Plain data; handed over as it becomes known, in any order, long after the call.
#pragma once

#include <cstdint>

namespace nimble::shim {

struct DeviceTime {
  std::uint64_t ticket = 0;                // CurrentCall::ticket of the op's call
  std::uint64_t begin_ns = 0, end_ns = 0;  // on the clock of now_ns()
};

}  // namespace nimble::shim
