// A context that comes and goes beside the program's, behind which kernels of the program's follow each other sooner.
//
// Measured with driver 580.159 on an H200 (docs/explanation/pytorch.md, Contexts that come and go): between two kernels
// that need each other lie 0.29 us, or 0.11 us once any context on the device has come or gone, be it another
// process's, until a stream is used for the first time, and sometimes longer. NVIDIA documents nothing of it; nothing
// smaller was found that does it.
#pragma once

#include "nimble/internal/call.h"

namespace nimble::shim {

// Beside the current context, by the driver's own functions. False where there is none, where the device has no room to
// spare, or the driver makes no other. The current context is the same behind it.
bool settle(CallContext& context);

}  // namespace nimble::shim
