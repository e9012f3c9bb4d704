// Determines which op of the step a call is, as the next one on its stream, and the kind of the step.
//
// Owns how far the step has come, and the live values of its ops. Not synchronised: the replayer's lock guards it.
// Matching allocates nothing.
#pragma once

#include <cstdint>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "nimble/internal/step_paths.h"
#include "replayer/bind/memory_plan.h"
#include "replayer/bind/step_memory.h"
#include "replayer/driver/driver_api.h"
#include "replayer/match/op_match.h"
#include "replayer/match/step_cursor.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class StepMatch {
 public:
  // All must outlive it.
  StepMatch(const Schedule& schedule, const StepPaths& paths, CallContext& context, const DriverApi& driver,
            StepMemory& memory, const MemoryPlan& plan, const StepStreams& streams);

  StepCursor& cursor() { return cursor_; }
  const StepCursor& cursor() const { return cursor_; }
  OpMatch& live() { return live_; }
  const OpMatch& live() const { return live_; }

  // The op that the call is, as the next on this stream of the schedule; assumes a kind of step that has it. kNone for
  // none: `reason` says why it is not the expected one.
  std::uint32_t next_op(std::uint32_t stream, const Call& call, const char*& reason);
  // The same if the call is the step's first on a stream of the schedule that has no stream of the program yet, or
  // whose stream may have moved. `bound`: graphs are bound to the launch stream.
  std::uint32_t op_that_begins_a_stream(const Call& call, bool bound);
  // Whether steps of some kind may begin with it.
  bool may_begin_step(std::uint32_t stream, const Call& call) const;
  // Whether the op is the first of the step's kind.
  bool is_first(std::uint32_t index) const { return paths_.ops(cursor_.kind()).front() == index; }

 private:
  // Why `call` is not this op of the step, or null if it is.
  const char* mismatch(std::uint32_t index, const Call& call);
  bool is_on_another_side(std::uint32_t index) const;
  bool has_this_shape(std::uint32_t index, const Call& call) const;

  const Schedule& schedule_;
  const bool several_streams_, several_kinds_;
  const StepPaths& paths_;
  CallContext& context_;
  ObjectMap& objects_;
  const MemoryPlan& plan_;
  const StepStreams& streams_;
  OpMatch live_;
  StepCursor cursor_;
};

}  // namespace nimble
