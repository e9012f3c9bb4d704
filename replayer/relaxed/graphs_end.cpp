#include "replayer/relaxed/graphs_end.h"

#include "replayer/driver/current_context.h"

namespace nimble {

void GraphsEnd::mark() {
  if (through_ == launches_ || marked_ == launches_ || captures_.any()) return;
  const CurrentContext current(driver_, streams_.context());
  if (!event_ && driver_.cuEventCreate_(&event_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) event_ = nullptr;
  if (event_ && stream_.key != 0 && driver_.cuEventRecord_(event_, stream_.handle) == CUDA_SUCCESS) marked_ = launches_;
}

bool GraphsEnd::are_through() {
  if (through_ == launches_) return true;
  const CurrentContext current(driver_, streams_.context());
  bool is_through = false;
  // An event that is recorded where nothing runs may take a moment to come true.
  if (marked_ != launches_ && !captures_.any() && stream_.key != 0)
    is_through = driver_.cuStreamQuery_(stream_.handle) == CUDA_SUCCESS;
  mark();
  if (marked_ == launches_) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // the question ends no capture of others
    const bool relaxed = driver_.cuThreadExchangeStreamCaptureMode_(&mode) == CUDA_SUCCESS;
    is_through = is_through || driver_.cuEventQuery_(event_) != CUDA_ERROR_NOT_READY;
    if (relaxed) driver_.cuThreadExchangeStreamCaptureMode_(&mode);
  }
  if (is_through) through_ = launches_;
  return is_through;
}

}  // namespace nimble
