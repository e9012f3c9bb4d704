// Through which calls the program could notice that a StepPlayer holds ops back, and which streams it must not touch.
#include <algorithm>

#include "replayer/step_player.h"

namespace nimble {

// Whether the op goes into a graph that the program is capturing: then it does nothing now.
bool StepPlayer::is_captured(const Call& call) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return !captures_.empty() && call.has_stream &&
         driver_.cuStreamIsCapturing_(call.stream.handle, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void StepPlayer::forget_capture(const StreamRef& stream) {
  if (const auto found = captures_.find(stream.key); found != captures_.end()) captures_.erase(found);
}

bool StepPlayer::record_is_held(CUevent event) const {
  return event && std::find(held_events_.begin(), held_events_.end(), event) != held_events_.end();
}

bool StepPlayer::wait_is_held(CUevent event) const {
  return event && std::any_of(held_.begin(), held_.end(), [&](std::uint32_t index) {
           return schedule_.ops[index].kind == CallKind::event_wait && live_.live(index).event == event;
         });
}

// Whether the program could notice through `call` that held ops have not been submitted.
bool StepPlayer::observes(const Call& call) const {
  if (held_.empty()) return false;
  // An event of an earlier step has been submitted long ago: waiting for it needs nothing of ours.
  if (call.kind == CallKind::event_synchronize) return record_is_held(call.event) || record_is_held(call.event2);
  if (!is_op(call.kind) && call.kind != CallKind::stream_synchronize) return true;
  if (record_is_held(call.event)) return true;
  // What is waited for is the event as it is now.
  if (is_op(call.kind) && (wait_is_held(call.event) || wait_is_held(call.event2))) return true;
  // A graph of the program's may hold a wait for one of these events.
  if (call.kind == CallKind::graph_launch && !held_events_.empty()) return true;
  if (call.kind != CallKind::stream_synchronize && call.host == HostEffect::observe) return true;
  for (const std::uint32_t index : held_) {
    const StreamRef& mine = streams_[schedule_.ops[index].stream];
    if (call.stream == mine) return true;
    // Two streams are ordered with each other only where one of them is the legacy default stream and the other blocks.
    if (!call.stream.is_legacy() && !mine.is_legacy()) continue;
    if (context_.stream_kind(call.stream.is_legacy() ? mine : call.stream) != StreamKind::non_blocking) return true;
  }
  return false;
}

}  // namespace nimble
