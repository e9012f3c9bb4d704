// Waits until all work of a context is done, for so long and no longer.
//
// The driver can only be asked to wait for good, and what the GPU does may be waiting for the thread that asks. So a
// thread of its own does, which outlasts the question where it has to; while one does no other is begun. The question
// ends captures of other threads where they are under way when it is asked: the caller sees to it that none is, and
// that none begins before the answer. Any thread; no lock may be held.
#pragma once

#include <cuda.h>

#include <chrono>
#include <functional>

#include "nimble/internal/call.h"

namespace nimble::shim {

// Whether it was done within that time. `enter_helper_thread`: run first on that thread, so that its calls pass.
bool is_done_within(std::chrono::milliseconds patience, CUcontext cu_context, CallContext& context,
                    const std::function<void()>& enter_helper_thread);

// The context is about to end, which waits for its work as well: until then the thread that is left of such a question
// is in the driver with it.
void wait_for_helper(CUcontext cu_context);

}  // namespace nimble::shim
