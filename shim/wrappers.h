// The wrappers: one instance of one template for every line of the call table. See wrappers.cpp.
#pragma once

#include "shim/calls.h"

namespace nimble::shim {

// The wrapper for `id`, with the entry point's own signature.
void* wrapper(CallId id);

}  // namespace nimble::shim
