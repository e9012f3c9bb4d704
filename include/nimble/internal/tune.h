// When ways of submitting are tried against each other (NIMBLE_TUNE in nimble/internal/options.def).
#pragma once

#include <cstdint>

namespace nimble {

enum class Tune : std::uint8_t { off, start, always };

}  // namespace nimble
