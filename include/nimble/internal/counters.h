// The counters of include/nimble/internal/counters.def as plain numbers. Not synchronised.
#pragma once

#include <cstdint>

namespace nimble {

struct CounterValues {
#define NIMBLE_COUNTER(name, meaning) std::uint64_t name = 0;
#include "nimble/internal/counters.def"
};

}  // namespace nimble
