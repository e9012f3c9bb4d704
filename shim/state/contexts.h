// What the driver tells of contexts, and who must hear that one ends.
//
// No state of its own; any thread.
#pragma once

#include <cuda.h>

namespace nimble::shim {

// The calling thread's context; null if it has none.
CUcontext current_context();

// The primary context of a device, null where it is not active; whether it is; the context that a green context is.
CUcontext primary_context(CUdevice device);
// Whether it is a device's primary context.
bool is_primary(CUcontext context);
bool primary_context_is_active(CUdevice device);
CUcontext context_of_green(CUgreenCtx context);

// A context ends: the handles of its streams may be reused.
void context_ending(CUcontext context);
// It has ended: its modules are gone.
void context_ended(CUcontext context);

}  // namespace nimble::shim
