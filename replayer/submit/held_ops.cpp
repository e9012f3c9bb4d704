#include "replayer/submit/held_ops.h"

namespace nimble {

HeldOps::HeldOps(const Schedule& schedule, CallContext& context, const OpMatch& live, const StepStreams& streams)
    : schedule_(schedule), context_(context), live_(live), streams_(streams) {
  // On several streams ops of later segments may come before a segment is complete.
  std::size_t longest = schedule.streams.size() > 1 ? schedule.ops.size() : 0;
  for (const ScheduleSegment& segment : schedule.segments)
    longest = std::max<std::size_t>(longest, segment.last - segment.first + 1);
  ops_.reserve(longest);
  events_.reserve(longest);
  changed_.reserve(longest);
  taken_.reserve(longest);
}

bool HeldOps::has_wait(CUevent event) const {
  return event && std::any_of(ops_.begin(), ops_.end(), [&](std::uint32_t index) {
           return schedule_.ops[index].kind == CallKind::event_wait && live_.live(index).event == event;
         });
}

bool HeldOps::shows(const Call& call) const {
  if (ops_.empty()) return false;
  // An event of an earlier step was submitted long ago: waiting for it needs none of our ops.
  if (call.kind == CallKind::event_synchronize) return has_record(call.event) || has_record(call.event2);
  if (!is_op(call.kind) && call.kind != CallKind::stream_synchronize) return true;
  if (has_record(call.event)) return true;
  // A wait refers to the event's present record.
  if (is_op(call.kind) && (has_wait(call.event) || has_wait(call.event2))) return true;
  // A graph of the program may wait for one of these events.
  if (call.kind == CallKind::graph_launch && !events_.empty()) return true;
  if (call.kind != CallKind::stream_synchronize && call.host == HostEffect::observe) return true;
  for (const std::uint32_t index : ops_) {
    const StreamRef& mine = streams_[schedule_.ops[index].stream];
    if (call.stream == mine) return true;
    // Two streams are implicitly ordered only if one is the legacy default stream and the other is blocking.
    if (!call.stream.is_legacy() && !mine.is_legacy()) continue;
    if (context_.stream_kind(call.stream.is_legacy() ? mine : call.stream) != StreamKind::non_blocking) return true;
  }
  return false;
}

const std::vector<std::uint32_t>& HeldOps::take(std::uint32_t segment) {
  taken_.clear();
  if (schedule_.streams.size() == 1) {
    taken_.swap(ops_);
    events_.clear();
    return taken_;
  }
  std::size_t kept = 0;
  for (const std::uint32_t index : ops_) {
    if (schedule_.ops[index].segment == segment) {
      taken_.push_back(index);
    } else {
      ops_[kept++] = index;
    }
  }
  ops_.resize(kept);
  events_.clear();
  for (const std::uint32_t index : ops_) {
    if (schedule_.ops[index].kind == CallKind::event_record) events_.push_back(live_.live(index).event);
  }
  return taken_;
}

const std::vector<std::uint32_t>& HeldOps::take_all() {
  taken_.swap(ops_);
  clear();
  return taken_;
}

}  // namespace nimble
