#include "replayer/step_order/step_streams.h"

#include "replayer/driver/current_context.h"

namespace nimble {

bool StepStreams::could_be(std::uint32_t s, const StreamRef& stream) const {
  if (stream.is_per_thread()) return false;  // the watchdog's thread cannot name it
  return count_ == 1 || calls_.stream_kind(stream) == schedule_.streams[s].kind;
}

void StepStreams::set(std::uint32_t s, const StreamRef& stream) {
  if (live_[s] == stream) return;
  ends(s);
  live_[s] = stream;
  ++version_;
  if (count_ == 1) return;
  // Its work so far is unknown: all of it may be from outside, and before all marks.
  all_[s].after_mark = 0;
  all_[s].ahead = all_[s].outside = true;
  all_[s].probed = false;
  is_settled(s);
}

void StepStreams::ends(std::uint32_t s) {
  if (!has(s)) return;
  catch_up(s);
  if (s != 0 && all_[s].ahead && has(0)) {
    if (launch_captures()) {
      CUevent tail = nullptr;
      if (record(tail, live_[s]) == CUDA_SUCCESS) later(tail);
    } else {
      gather(s);
    }
  }
  live_[s] = {};
  ++version_;
}

void StepStreams::forget() {
  for (std::uint32_t s = 0; s < count_; ++s) {
    if (!has(s)) continue;
    catch_up(s);
    live_[s] = {};
    ++version_;
  }
}

bool StepStreams::use_current_context() {
  CUcontext context = nullptr;
  if (driver_.cuCtxGetCurrent_(&context) != CUDA_SUCCESS || !context) return false;
  use_context(context);
  return true;
}

bool StepStreams::context_is_current() const {
  CUcontext context = nullptr;
  return driver_.cuCtxGetCurrent_(&context) == CUDA_SUCCESS && context == context_;
}

CUresult StepStreams::wait_instead(const StreamRef& stream, CUresult error) {
  // Retry, in case the driver only ran short for a moment: there is no third way.
  if (driver_.cuStreamSynchronize_(stream.handle) != CUDA_SUCCESS) driver_.cuStreamSynchronize_(stream.handle);
  return error;
}

CUresult StepStreams::record(CUevent& event, const StreamRef& stream) {
  CUresult result = event ? CUDA_SUCCESS : driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING);
  return result == CUDA_SUCCESS ? driver_.cuEventRecord_(event, stream.handle) : result;
}

CUresult StepStreams::catch_up(std::uint32_t s) {
  if (s == 0 || all_[s].after_mark == marks_) return CUDA_SUCCESS;
  const CurrentContext current(driver_, context_);
  all_[s].after_mark = marks_;
  const CUresult result = driver_.cuStreamWaitEvent_(live_[s].handle, mark_, 0);
  return result == CUDA_SUCCESS ? result : wait_instead(launch(), result);
}

CUresult StepStreams::individually(std::uint32_t s) {
  if (count_ == 1) return CUDA_SUCCESS;
  const CUresult result = catch_up(s);
  all_[s].ahead = true;
  return result;
}

CUresult StepStreams::outside(std::uint32_t s, bool may_wait) {
  if (count_ == 1) return CUDA_SUCCESS;
  all_[s].outside = all_[s].outside || may_wait;
  return individually(s);
}

// A wait would be captured into its graph, or invalidate the capture.
bool StepStreams::launch_captures() const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_.cuStreamIsCapturing_(launch().handle, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult StepStreams::gather() {
  CUresult result = CUDA_SUCCESS;
  for (std::uint32_t s = 1; s < count_; ++s) {
    const CUresult mine = gather(s);
    if (mine != CUDA_SUCCESS) result = mine;
  }
  return result;
}

CUresult StepStreams::gather(std::uint32_t s) {
  Stream& stream = all_[s];
  if (!stream.ahead || !has(s)) return CUDA_SUCCESS;
  const CurrentContext current(driver_, context_);
  CUresult result = record(stream.tail, live_[s]);
  if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(launch().handle, stream.tail, 0);
  if (result != CUDA_SUCCESS) wait_instead(live_[s], result);
  stream.ahead = false;
  return result;
}

CUresult StepStreams::mark() {
  const CurrentContext current(driver_, context_);
  const CUresult result = record(mark_, launch());
  all_[0].ahead = false;
  if (result != CUDA_SUCCESS) return wait_instead(launch(), result);
  ++marks_;
  return result;
}

CUresult StepStreams::follow_due() {
  while (!due_.empty()) {
    const CurrentContext current(driver_, context_);
    const CUresult result = driver_.cuStreamWaitEvent_(launch().handle, due_.back(), 0);
    if (result != CUDA_SUCCESS) return result;
    driver_.cuEventDestroy_(due_.back());
    due_.pop_back();
  }
  return CUDA_SUCCESS;
}

CUresult StepStreams::begin_step() {
  if (const CUresult result = follow_due(); result != CUDA_SUCCESS) return result;
  bool any = false;
  for (std::uint32_t s = 0; s < count_; ++s) any = any || all_[s].ahead;
  if (count_ == 1 || !any) return CUDA_SUCCESS;
  const CUresult result = gather();
  return result == CUDA_SUCCESS ? mark() : result;
}

// Records an event after the work from outside, and asks whether it has happened.
bool StepStreams::is_settled(std::uint32_t s) {
  Stream& stream = all_[s];
  if (!stream.outside && !stream.probed) return true;
  const CurrentContext current(driver_, context_);
  if (driver_.cuStreamQuery_(live_[s].handle) == CUDA_SUCCESS) {
    stream.outside = stream.probed = false;
    return true;
  }
  if (stream.probed) stream.probed = driver_.cuEventQuery_(stream.probe) != CUDA_SUCCESS;
  // Reuse the event only if no one waits for it any more.
  if (!stream.probed && stream.outside && record(stream.probe, live_[s]) == CUDA_SUCCESS) {
    stream.outside = false;
    stream.probed = true;
  }
  return !stream.outside && !stream.probed;
}

bool StepStreams::settled() {
  if (count_ == 1) return true;
  bool settled = true;
  for (std::uint32_t s = 1; s < count_; ++s) {
    if (has(s)) settled = is_settled(s) && settled;
  }
  // Streams forked from the launch stream are ordered after all of its earlier work, by the program's own events.
  return (all_forked_ || is_settled(0)) && settled;
}

CUresult StepStreams::release() {
  CUresult result = CUDA_SUCCESS;
  for (std::uint32_t s = 1; s < count_; ++s) {
    if (!has(s)) continue;
    const CUresult mine = catch_up(s);
    if (result == CUDA_SUCCESS) result = mine;
  }
  return result;
}

void StepStreams::abandon() {
  all_ = {};
  live_ = {};
  due_.clear();
  mark_ = nullptr;
  marks_ = 0;
  ++version_;
}

}  // namespace nimble
