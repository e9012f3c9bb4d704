// Creates and destroys a context beside the program's, after which the program's kernels follow each other sooner.
//
// Measured with driver 580.159 on an H200 (docs/explanation/pytorch.md, Contexts that come and go): dependent kernels
// lie 0.29 us apart, or 0.11 us once any context on the device, even another process's, has been created or destroyed,
// until a stream is first used, and sometimes longer. NVIDIA does not document this; we found nothing smaller with that
// effect.
#pragma once

#include "nimble/internal/call.h"

namespace nimble::shim {

// Does so by the driver's own functions. False if no context is current, the device has no room to spare, or the driver
// refuses. The current context stays current.
bool settle(CallContext& context);

}  // namespace nimble::shim
