#include "replayer/errors/step_errors.h"

#include <string>

#include "replayer/driver/result_name.h"

namespace nimble {

void StepErrors::refused(CUresult error) {
  owed_.add(error);
  note(error);
  standing_.stand_aside("the driver refused an op (" + result_name(error) + ")");
}

// Calls that also return the driver's asynchronous errors. They have had their effect: a program that goes on finds its
// data as if they had succeeded. Excludes calls that create something, since the program would not use what was
// created, and calls that begin or end a capture, or are captured.
bool StepErrors::may_tell(const Call& call) const {
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
      return !captures_.takes(call, driver_.cuStreamIsCapturing_);
    case CallKind::free:
    case CallKind::stream_synchronize:
    case CallKind::event_synchronize:
    case CallKind::context_synchronize:
      return true;
    default:
      return false;
  }
}

CUresult StepErrors::tell(const Call& call, CUresult result) {
  if (call.kind == CallKind::context_end && result == CUDA_SUCCESS) {
    const bool ours = !call.context || call.context == streams_.context();
    if (!ours) return result;
    const CUresult told = owed_.tell(result);
    owed_.forget();
    return told;
  }
  CUcontext current = nullptr;
  const bool ours = driver_.cuCtxGetCurrent_(&current) == CUDA_SUCCESS && current == streams_.context();
  return ours && (may_tell(call) || is_final(result)) ? owed_.tell(result) : result;
}

void StepErrors::context_failed(CUresult error) {
  CUcontext current = nullptr;
  if (driver_.cuCtxGetCurrent_(&current) == CUDA_SUCCESS && current == streams_.context()) failed_ = error;
  standing_.stand_aside("a context has failed (" + result_name(error) + ")");
}

}  // namespace nimble
