// What sinks may ask about functions, streams and the driver, answered from this process's tables.
#pragma once

#include "nimble/internal/call.h"

namespace nimble::shim {

// One per process, made on first use and never destroyed: other threads may still be calling while the process ends.
// Throws std::bad_alloc. Thread-safe, as is what it returns.
CallContext& call_context();

}  // namespace nimble::shim
