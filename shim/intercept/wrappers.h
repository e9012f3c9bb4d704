// The wrappers: one instance of one template for every line of the call table. See wrappers.cpp.
#pragma once

#include "shim/driver/calls.h"

namespace nimble::shim {

// The wrapper for `id`, with the entry point's own signature: in front of the driver's own function, and in front of
// what a call by name would reach (g_next in shim/driver/real_driver.h).
void* wrapper(CallId id);
void* next_wrapper(CallId id);

}  // namespace nimble::shim
