// What a StepPlayer does about errors of the driver's: those of held ops are owed to the program, and where a context
// has failed or ended nothing of ours is left standing in it.
#include <string>

#include "replayer/step_player.h"

namespace nimble {

void StepPlayer::refused(CUresult error) {
  owed_.add(error);
  if (is_final(error)) failed_ = error;
  stand_aside("the driver refused an op (error " + std::to_string(error) + ")");
}

// Calls that tell asynchronous errors of the driver's as well. They have done what they are for: a program that goes on
// finds its data as if they had succeeded. No call that makes something tells, since the program would not look for
// what was made, and none that begins or ends a capture, or is captured.
bool StepPlayer::may_tell(const Call& call) const {
  if (!call.traced) return false;
  switch (call.kind) {
    case CallKind::launch:
    case CallKind::copy:
    case CallKind::set:
    case CallKind::event_record:
    case CallKind::event_wait:
    case CallKind::host_function:
    case CallKind::graph_launch:
    case CallKind::opaque:
      return !is_captured(call);
    case CallKind::free:
    case CallKind::stream_synchronize:
    case CallKind::event_synchronize:
    case CallKind::context_synchronize:
      return true;
    default:
      return false;
  }
}

CUresult StepPlayer::tell(const Call& call, CUresult result) {
  if (call.kind == CallKind::context_end && result == CUDA_SUCCESS) {
    const bool ours = !call.context || call.context == cu_context_;
    if (!ours) return result;
    const CUresult told = owed_.tell(result);
    owed_.forget();
    return told;
  }
  CUcontext current = nullptr;
  const bool ours = driver_.cuCtxGetCurrent_(&current) == CUDA_SUCCESS && current == cu_context_;
  return ours && (may_tell(call) || is_final(result)) ? owed_.tell(result) : result;
}

// No error of the program's: the memory is free. It must not be used again, which it is not once replay stands aside.
CUresult StepPlayer::could_not_wait(CUresult error) {
  stand_aside("memory was freed on a stream that cannot be waited for (error " + std::to_string(error) + ")");
  arena_use_unknown_ = true;
  if (is_final(error)) failed_ = error;
  return failed_;
}

void StepPlayer::context_failed(CUresult result) {
  CUcontext current = nullptr;
  if (driver_.cuCtxGetCurrent_(&current) == CUDA_SUCCESS && current == cu_context_) failed_ = result;
  if (!aside_.empty()) return;
  stand_aside("a context has failed (error " + std::to_string(result) + ")");
  leave();
}

void StepPlayer::context_gone(const Call& call) {
  if (!call.context || call.context == cu_context_) failed_ = CUDA_SUCCESS;
  if (!arena_ || (call.context && call.context != arena_context_)) return;
  arena_context_ = nullptr;  // no call is made with it current any more
  // The pool outlives contexts, unless the device itself was reset: the arena tells. Where it is gone the driver may
  // give its addresses to others from now on.
  unsigned type = 0;
  if (driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, arena_) == CUDA_ERROR_INVALID_VALUE)
    arena_ = 0;
}

}  // namespace nimble
