// Makes a context current on this thread for a scope.
#pragma once

#include "replayer/driver/driver_api.h"

namespace nimble {

// Held ops may be submitted by another thread than the one that issued them. A failure would submit them to another
// context, or leave the program with ours: so both calls are retried once, in case the driver only ran short for a
// moment.
class CurrentContext {
 public:
  CurrentContext(const DriverApi& driver, CUcontext context) : driver_(driver) {
    CUcontext now = nullptr;
    driver.cuCtxGetCurrent_(&now);
    const auto push = [&] { return driver.cuCtxPushCurrent_(context) == CUDA_SUCCESS; };
    pushed_ = now != context && (push() || push());
  }
  ~CurrentContext() {
    CUcontext ignored = nullptr;
    if (pushed_ && driver_.cuCtxPopCurrent_(&ignored) != CUDA_SUCCESS) driver_.cuCtxPopCurrent_(&ignored);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const DriverApi& driver_;
  bool pushed_ = false;
};

}  // namespace nimble
