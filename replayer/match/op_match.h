// Matches the live program's step with the schedule's: compares each call with the expected op, and keeps its values.
//
// For every op of the schedule there are the values that the executable graph holds (`bound`) and those that the
// program passed last (`live`). Not synchronised: the replayer's lock guards it. Matching allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"
#include "replayer/match/event_records.h"
#include "replayer/match/op_values.h"
#include "replayer/match/pointer_words.h"
#include "replayer/match/taken_shapes.h"

namespace nimble {

// Whether the call may be this op of the step, judged by its kind and its function.
bool could_be(const Schedule& schedule, CallContext& context, std::uint32_t op, const Call& call);

class OpMatch {
 public:
  // Adds variables of images to `memory` when a kernel that touches them is first seen.
  OpMatch(const Schedule& schedule, CallContext& context, MemoryMap& memory, ObjectMap& objects, Reach reach);

  // Null if `call` is the schedule's op `index`; its values are then live. Otherwise the reason, a text that lives
  // forever.
  const char* match(std::uint32_t index, const Call& call);

  // A step begins.
  void begin_step() {
    records_.begin_step();
    unknown_wait_ = unknown_shape_ = false;
  }
  // Whether the step has waited for an event that is not known to have been recorded by an earlier step. Not wrong, but
  // the graphs' order does not cover that wait.
  bool unknown_wait() const { return unknown_wait_; }
  // Whether the step has launched a kernel with a block shape, or shared memory, that the driver has not accepted for
  // it yet. The driver may refuse, and a program that tries launches out needs the error at once.
  bool unknown_shape() const { return unknown_shape_; }
  // The driver has answered a launch of the step.
  void launched(const Call& call, bool good);
  // The event was recorded elsewhere, or ends.
  void forget_record(CUevent event) { records_.forget(event); }

  // Any of them may have been.
  void forget_records() { records_.forget(); }

  // Where the last mismatch was found: byte of a launch's packed parameters, kNone if elsewhere.
  std::uint32_t mismatch_at() const { return mismatch_at_; }

  const OpValues& live(std::uint32_t index) const { return ops_[index].live; }
  // The live parameters of a launch, packed; valid until the op is matched again.
  const std::uint8_t* params(std::uint32_t index) const { return live_bytes_.data() + ops_[index].params; }
  // Whether the live values differ from what the graph holds.
  bool changed(std::uint32_t index) const { return ops_[index].changed; }
  // The graph now holds the live values.
  void bound(std::uint32_t index);

  // Rewrites all pointers to step-local objects to the addresses that ObjectMap has for them now.
  void rebase();
  // The event is being destroyed: no graph may still name it, and its handle may be reused.
  void forget_event(CUevent event);
  // Functions may have been unloaded: forgets their handles.
  void forget_functions();

 private:
  struct Op {
    OpValues live;
    const FunctionInfo* info = nullptr;         // of the live function
    std::uint32_t params = 0, param_bytes = 0;  // place in the byte buffers
    std::uint64_t verified = 0;                 // ObjectMap::generation() when the pointers were last checked
    bool changed = true;
  };

  const char* match_direct(std::uint32_t index, const Call& call);
  const char* match_record(std::uint32_t index, const Call& call);
  const char* match_launch(std::uint32_t index, const Call& call);
  const char* match_function(std::uint32_t index, const Call& call);
  const char* match_shape(std::uint32_t index, const Call& call);
  const char* match_copy(std::uint32_t index, const Call& call);
  const char* match_set(std::uint32_t index, const Call& call);
  const char* match_wait(std::uint32_t index, const Call& call);
  const char* check_pointers(std::uint32_t index);
  const char* check_globals(std::uint32_t index);
  const char* check_payload(const ScheduleOp& op, const Call& call);
  bool fits(const SchedulePointer& pointer, const Region& region, const ScheduleOp& op) const;

  const Schedule& schedule_;
  CallContext& context_;
  MemoryMap& memory_;
  ObjectMap& objects_;
  PointerWords words_;
  const bool names_variables_;  // of an image: the step may write what kernels read as constants
  EventRecords records_;
  bool unknown_wait_ = false, unknown_shape_ = false;
  TakenShapes taken_shapes_;
  std::uint32_t mismatch_at_ = kNone;
  std::vector<Op> ops_;
  std::vector<std::uint8_t> live_bytes_, bound_bytes_;
};

}  // namespace nimble
