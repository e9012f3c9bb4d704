// The held ops of the step: the program believes them submitted, and the driver has yet to get them.
//
// Knows through which calls the program could notice. Holds op numbers of the schedule; OpMatch has their values.
// Allocates nothing once built. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/match/op_match.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class HeldOps {
 public:
  // All must outlive it.
  HeldOps(const Schedule& schedule, CallContext& context, const OpMatch& live, const StepStreams& streams);

  bool empty() const { return ops_.empty(); }
  // 0 while nothing is held; otherwise a number that changes exactly with every held op.
  std::uint64_t holding() const { return ops_.empty() ? 0 : holds_; }
  // Whether some held op precedes this one in the schedule.
  bool any_before(std::uint32_t index) const {
    return std::any_of(ops_.begin(), ops_.end(), [index](std::uint32_t other) { return other < index; });
  }

  // `changed`: its node has to be patched.
  [[gnu::always_inline]] void hold(std::uint32_t index, const Call& call, bool changed) {
    ops_.push_back(index);
    ++holds_;
    if (changed) changed_.push_back(index);
    if (call.kind == CallKind::event_record) events_.push_back(call.event);
  }

  // Whether a record of the event is held, or a wait for it.
  bool has_record(CUevent event) const {
    return event && std::find(events_.begin(), events_.end(), event) != events_.end();
  }
  bool has_wait(CUevent event) const;
  // Whether the program could notice through `call` that ops are held.
  bool shows(const Call& call) const;

  // Takes the segment's ops, or all. In the order in which they came; valid until the next call of either.
  const std::vector<std::uint32_t>& take(std::uint32_t segment);
  const std::vector<std::uint32_t>& take_all();
  // The result of the last take().
  const std::vector<std::uint32_t>& taken() const { return taken_; }
  // Calls `patch` for each op of the segment that has to be patched, once.
  template <typename Patch>
  void patch_changed(std::uint32_t segment, Patch patch) {
    std::size_t kept = 0;
    for (const std::uint32_t index : changed_) {
      if (schedule_.ops[index].segment == segment) {
        patch(index);
      } else {
        changed_[kept++] = index;
      }
    }
    changed_.resize(kept);
  }

  void clear() {
    ops_.clear();
    events_.clear();
    changed_.clear();
  }

 private:
  const Schedule& schedule_;
  CallContext& context_;
  const OpMatch& live_;
  const StepStreams& streams_;
  std::vector<std::uint32_t> ops_, changed_;  // in the order in which they came
  std::vector<CUevent> events_;               // that they record
  std::vector<std::uint32_t> taken_;
  std::uint64_t holds_ = 0;  // so far
};

}  // namespace nimble
