// When to time the ways of submitting against each other (NIMBLE_TUNE in nimble/internal/options.def).
#pragma once

#include <cstdint>

namespace nimble {

enum class Tune : std::uint8_t { off, start, always };

}  // namespace nimble
