// Makes a context current on this thread for a while.
#pragma once

#include "replayer/driver_api.h"

namespace nimble {

// Held ops may be submitted by another thread than the one that issued them.
class CurrentContext {
 public:
  CurrentContext(const DriverApi& driver, CUcontext context) : driver_(driver) {
    CUcontext now = nullptr;
    driver.cuCtxGetCurrent_(&now);
    pushed_ = now != context && driver.cuCtxPushCurrent_(context) == CUDA_SUCCESS;
  }
  ~CurrentContext() {
    CUcontext ignored = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_(&ignored);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const DriverApi& driver_;
  bool pushed_ = false;
};

}  // namespace nimble
