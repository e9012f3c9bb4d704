// What the driver has refused of a step: errors of held ops, which the program has yet to be told of, and the error of
// the step's context, which every call has from then on.
//
// Judges which calls may tell such an error. Not synchronised: the replayer's lock guards it. Asks the driver which
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

  // The driver has refused an op that the program was told had been submitted: replay stands aside.
  void refused(CUresult error);
  // What such an op has done is lost.
  void lost(CUresult error) { owed_.add(error); }

  // Whether some are owed; whether `call` may tell one; and the oldest of them, which it does.
  bool any() const { return owed_.any(); }
  bool may_tell(const Call& call) const;
  CUresult take() { return owed_.take(); }
  // What the program is told of a call that the driver has answered with `result`: that, or an error that is owed.
  CUresult tell(const Call& call, CUresult result);

  // What every call in the step's context answers by now.
  CUresult failed() const { return failed_; }
  // A call of ours in the step's context has failed; the program hears no more of it than failed().
  void note(CUresult error) {
    if (is_final(error)) failed_ = error;
  }
  // A call of the program's has failed with an error that its context does not survive: replay stands aside.
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
  OwedErrors owed_;
  CUresult failed_ = CUDA_SUCCESS;
};

}  // namespace nimble
