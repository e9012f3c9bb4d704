// The arena: an allocation of Nimble's, in which the step's own objects lie where the schedule's plan puts them. To the
// program they are allocations, which it queries and releases.
//
// Owns the allocation, which comes from the pool of the program's own, and its attributes. It is used on the launch
// stream, which is ordered after all uses elsewhere. Driver calls are made with the arena's context current. Not
// synchronised: the replayer's lock guards it. On errors replay stands aside, with a reason.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/bind/allocation_attributes.h"
#include "replayer/bind/going_arena.h"
#include "replayer/bind/left_arena.h"
#include "replayer/bind/memory_plan.h"
#include "replayer/bind/step_memory.h"
#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/step_errors.h"
#include "replayer/step_order/handover.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class Arena {
 public:
  static constexpr const char* kPoolAsked = "the program asks how much memory its pool has, which replay would change";

  // All must outlive it.
  Arena(const Schedule& schedule, const DriverApi& driver, StepMemory& memory, StepStreams& streams,
        const Captures& captures, StepErrors& errors, StandAside& standing);

  MemoryPlan& plan() { return plan_; }
  const MemoryPlan& plan() const { return plan_; }
  // 0 while there is none.
  std::uint64_t base() const { return base_; }
  std::uint64_t bytes() const { return schedule_.arena_bytes; }
  CUcontext context() const { return context_; }
  bool holds(std::uint64_t address) const { return address - base_ < schedule_.arena_bytes && base_; }
  // Whether the program has memory in it.
  bool is_in_use() const { return memory_.objects().all_taken() != 0; }

  // The step releases its launch stream: the arena may next be used on another one.
  void leave_stream() { handover_.leave(); }
  // Gets the arena for the launch stream, if the schedule needs one and there is none yet, and gives the step's objects
  // their places. With the step's context current. False if replay stands aside.
  bool provide();
  // Places the step's own objects, unless they have places already.
  void place_objects() {
    if (!plan_.is_placed()) plan_.place(base_);
  }
  // Releases it to the pool, in stream order: after all its uses. Not if the program has memory in it, a capture is in
  // the way, or not all of its uses are known. Whether it did.
  bool give_back();
  // The same; `going` tells the outcome, without an event if that is unknown.
  bool give_back(GoingArena& going);
  // Replay has stood aside, and the step's streams are released: the arena goes back now, or once the program has
  // released its memory in it.
  void leave();

  // The program allocates this object, or releases it, where the schedule expects it.
  void take(std::uint32_t object, Call& call) {
    memory_.objects().take(object, true);
    call.memory.address = base_ + schedule_.objects[object].plan_offset;
    memory_.objects().use(object);
  }
  void put_back(std::uint32_t object, const Call& call) {
    memory_.objects().take(object, false);
    answers_.gone(call.memory.address);
  }
  // It releases one elsewhere. `bound`: the launch stream is known.
  CUresult release(const Call& call, bool bound);

  // What the program asks about memory in it.
  Answer answer_question(Call& call);
  // What the driver would say of a handle for memory in it, or of a release as the host's, where the program has
  // nothing allocated: the driver itself sees the whole block.
  Answer refuse(const Call& call) const;
  // How much the program's pool has: what it would have without us, which is known while there is an arena of it.
  Answer answer_pool(Call& call) const;
  // That is asked: no arena may come of that pool any more. Whether there is one.
  bool ask_of_pool(const Call& call);
  void pool_was_asked() { pool_asked_ = true; }

  // A context has ended, as the driver has confirmed.
  void context_gone(const Call& call);

 private:
  bool is_of(const Call& call) const;
  bool gather_uses();
  void gone();
  void release_left(const Call& call);
  CUresult could_not_wait(CUresult error);

  const Schedule& schedule_;
  const DriverApi& driver_;
  StepMemory& memory_;
  StepStreams& streams_;
  const Captures& captures_;
  StepErrors& errors_;
  StandAside& standing_;
  MemoryPlan plan_;
  Handover handover_;  // from the last launch stream
  std::uint64_t base_ = 0;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;   // null if the driver does not say
  bool use_unknown_ = false;      // work may use it that the launch stream cannot wait for
  bool pool_asked_ = false;       // the program has asked how much memory a device's pool has
  AllocationAttributes answers_;  // of the program's allocations in it
  LeftArena left_;                // once replay has stood aside
};

}  // namespace nimble
