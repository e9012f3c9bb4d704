// How a recording measures when the GPU runs its ops (NIMBLE_TIMING). Apart from options.h, which changes with every
// option.
#pragma once

#include <cstdint>

namespace nimble::shim {

enum class Timing : std::uint8_t { none, cupti, events };

}  // namespace nimble::shim
