// Waits for all work of a context, with a timeout.
//
// The driver's wait has no timeout, and the GPU's work may be waiting for the calling thread. So a helper thread waits,
// which may outlast the call; there is one helper at a time. The wait would invalidate captures under way in other
// threads: the caller ensures that there is none, and that none begins before this returns. Any thread; no lock may be
// held.
#pragma once

#include <cuda.h>

#include <chrono>
#include <functional>

#include "nimble/internal/call.h"

namespace nimble::shim {

// Whether the work was done in time. `enter_helper_thread` runs first on the helper thread, so that its calls pass.
bool is_done_within(std::chrono::milliseconds patience, CUcontext cu_context, CallContext& context,
                    const std::function<void()>& enter_helper_thread);

// The context is about to end, which also waits for its work: until then a left-over helper thread stays in the driver
// with it.
void wait_for_helper(CUcontext cu_context);

}  // namespace nimble::shim
