// The observer of calls and of what ran (simcuda_observe in simcuda.h).
#pragma once

#include <cstdint>

#include "tests/simcuda/engine/op.h"

namespace simcuda {

// A call begins: before the driver is locked. Its number; 0 without an observer.
std::uint32_t observe_call(const char* symbol);

// An op has run that takes time, or an event's record. Under the driver's mutex.
void observe_run(const Op& op);

}  // namespace simcuda
