// Waits until all work of a context is done, for so long and no longer.
//
// The driver can only be asked to wait for good, and what the GPU does may be waiting for the thread that asks. So a
// thread of its own does, which outlasts the question where it has to; while one does no other is begun. Not while
// anything captures, whose capture that would end. Any thread; no lock of the caller's may be held.
#pragma once

#include <cuda.h>

#include <chrono>
#include <functional>

#include "nimble/call.h"

namespace nimble {

// Whether it was done within that time. `enter_helper_thread`: run first on that thread, so that its calls pass.
bool is_done_within(std::chrono::milliseconds patience, CUcontext cu_context, CallContext& context,
                    const std::function<void()>& enter_helper_thread);

}  // namespace nimble
