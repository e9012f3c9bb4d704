// What measures when the GPU runs the ops of a recording (NIMBLE_TIMING). Apart from options.h, which changes with
// every option.
#pragma once

#include <cstdint>

namespace nimble::shim {

enum class Timing : std::uint8_t { none, cupti, events };

}  // namespace nimble::shim
