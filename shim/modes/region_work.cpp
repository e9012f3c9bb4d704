#include "shim/modes/region_work.h"

#include "replayer/driver/current_context.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

RegionWork::~RegionWork() {
  if (last_ && !context_gone_) driver_.cuEventDestroy_(last_);
}

bool RegionWork::is_through() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (context_gone_) return true;
  const CurrentContext current(driver_, context_);
  if (!record()) return false;
  if (!last_) return true;  // never launched
  // Another thread may be capturing, and the query would invalidate that capture.
  const RelaxedCaptures relaxed(driver_.cuThreadExchangeStreamCaptureMode_);
  return driver_.cuEventQuery_(last_) != CUDA_ERROR_NOT_READY;
}

void RegionWork::mark(const StreamRef* stream) {
  const std::lock_guard lock(mutex_);
  if (context_gone_ || (stream && !(*stream == stream_))) return;
  const CurrentContext current(driver_, context_);
  record_or_wait();
  stream_ = {};
}

void RegionWork::context_goes() {
  const std::lock_guard lock(mutex_);
  context_gone_ = true;
}

CUresult RegionWork::order_after_last(const StreamRef& stream) {
  if (stream == stream_) return CUDA_SUCCESS;
  record_or_wait();
  if (is_due_) return CUDA_ERROR_UNKNOWN;
  return last_ ? driver_.cuStreamWaitEvent_(stream.handle, last_, 0) : CUDA_SUCCESS;
}

// On a thread's own default stream only that thread can record.
void RegionWork::launched(const StreamRef& stream, bool captures) {
  stream_ = stream;
  is_due_ = true;
  if (captures || stream.is_per_thread()) record_or_wait();
}

// Whether there is nothing left to record.
bool RegionWork::record() {
  if (!is_due_) return true;
  if (!last_ && driver_.cuEventCreate_(&last_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) last_ = nullptr;
  is_due_ = false;  // first: a launch may come that the record does not come after
  const bool recorded = last_ && driver_.cuEventRecord_(last_, stream_.handle) == CUDA_SUCCESS;
  if (!recorded) is_due_ = true;
  return recorded;
}

void RegionWork::record_or_wait() {
  if (record()) return;
  is_due_ = false;
  if (driver_.cuStreamSynchronize_(stream_.handle) != CUDA_SUCCESS) is_due_ = true;
}

}  // namespace nimble::shim
