#include "replayer/bind/left_arena.h"

#include <utility>

#include "replayer/driver/current_context.h"

namespace nimble {

namespace {

// While it lives, the program's captures neither forbid calls of this thread nor are invalidated by them.
class Relaxed {
 public:
  explicit Relaxed(const DriverApi& driver)
      : driver_(driver), is_(driver.cuThreadExchangeStreamCaptureMode_(&mode_) == CUDA_SUCCESS) {}
  ~Relaxed() {
    if (is_) driver_.cuThreadExchangeStreamCaptureMode_(&mode_);
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const DriverApi& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_;
};

}  // namespace

bool LeftArena::begin(CUcontext context, CUstream last) {
  context_ = context;
  if (!driver_.cuStreamCreate_) return false;
  const CurrentContext current(driver_, context_);
  const Relaxed relaxed(driver_);
  if (driver_.cuStreamCreate_(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) stream_ = nullptr;
  if (!stream_) return false;
  if (follow(last)) return true;
  driver_.cuStreamDestroy_(std::exchange(stream_, nullptr));
  return false;
}

bool LeftArena::follow(CUstream stream) {
  const CurrentContext current(driver_, context_);
  const Relaxed relaxed(driver_);
  CUstreamCaptureStatus captures = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (driver_.cuStreamIsCapturing_(stream, &captures) != CUDA_SUCCESS || captures != CU_STREAM_CAPTURE_STATUS_NONE)
    return false;
  CUevent event = nullptr;
  if (driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  const bool good = driver_.cuEventRecord_(event, stream) == CUDA_SUCCESS &&
                    driver_.cuStreamWaitEvent_(stream_, event, 0) == CUDA_SUCCESS;
  driver_.cuEventDestroy_(event);
  return good;
}

bool LeftArena::end(std::uint64_t arena) {
  const CurrentContext current(driver_, context_);
  const Relaxed relaxed(driver_);
  const bool good = driver_.cuMemFreeAsync_(arena, stream_) == CUDA_SUCCESS;
  driver_.cuStreamDestroy_(std::exchange(stream_, nullptr));
  return good;
}

}  // namespace nimble
