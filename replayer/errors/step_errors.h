// The driver's errors in a step: errors of held ops, which the program does not know of yet, and the error of the
// step's context, which every call returns from then on.
//
// Decides which calls may return such an error. Not synchronised: the replayer's lock guards it. Asks the driver which
// context is current.
#pragma once

#include <cuda.h>

#include "nimble/internal/call.h"
#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/deferred_errors.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class StepErrors {
 public:
  // All must outlive it.
  StepErrors(const DriverApi& driver, const StepStreams& streams, const Captures& captures, StandAside& standing)
      : driver_(driver), streams_(streams), captures_(captures), standing_(standing) {}

  // The driver has refused an op that the program believes submitted: replay stands aside.
  void refused(CUresult error);
  // The effect of such an op is lost.
  void lost(CUresult error) { owed_.add(error); }

  // Whether any are deferred; whether `call` may return one; and the oldest, which it returns.
  bool any() const { return owed_.any(); }
  bool may_tell(const Call& call) const;
  CUresult take() { return owed_.take(); }
  // The program's result of a call for which the driver has returned `result`: that, or a deferred error.
  CUresult tell(const Call& call, CUresult result);

  // The result of every call in the step's context by now.
  CUresult failed() const { return failed_; }
  // One of replay's own calls in the step's context has failed; the program hears only failed().
  void note(CUresult error) {
    if (is_final(error)) failed_ = error;
  }
  // A program call has failed with an error that destroys its context: replay stands aside.
  void context_failed(CUresult error);
  // A context has ended, as the driver has confirmed.
  void context_gone(const Call& call) {
    if (!call.context || call.context == streams_.context()) failed_ = CUDA_SUCCESS;
  }

 private:
  const DriverApi& driver_;
  const StepStreams& streams_;
  const Captures& captures_;
  StandAside& standing_;
  DeferredErrors owed_;
  CUresult failed_ = CUDA_SUCCESS;
};

}  // namespace nimble
