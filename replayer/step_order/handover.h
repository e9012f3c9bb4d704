// Hands the step over to another stream: its next work is ordered after its work on the previous one.
//
// Does not wait: that stream's work may need the very thread that makes the call. Owns the event between the two.
// Driver calls are made with the step's context current. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cuda.h>

#include "replayer/driver/captures.h"
#include "replayer/driver/current_context.h"
#include "replayer/driver/driver_api.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class Handover {
 public:
  // All must outlive it.
  Handover(const DriverApi& driver, StepStreams& streams, const Captures& captures)
      : driver_(driver), streams_(streams), captures_(captures) {}

  // The step releases its launch stream.
  void leave() {
    const CurrentContext current(driver_, streams_.context());
    // A capture would include the record.
    CUresult result = captures_.any() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) result = streams_.gather();
    if (result == CUDA_SUCCESS && !event_) result = driver_.cuEventCreate_(&event_, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(event_, streams_.launch().handle);
    failed_ = result != CUDA_SUCCESS;  // as at the program's end: harmless, unless the step comes again
  }
  // Makes the launch stream wait for all that. With the step's context current. Whether it does.
  bool follow() const {
    return !failed_ && (!event_ || driver_.cuStreamWaitEvent_(streams_.launch().handle, event_, 0) == CUDA_SUCCESS);
  }
  // Whether the order after the previous stream's last use is unknown.
  bool failed() const { return failed_; }

 private:
  const DriverApi& driver_;
  StepStreams& streams_;
  const Captures& captures_;
  CUevent event_ = nullptr;
  bool failed_ = false;
};

}  // namespace nimble
