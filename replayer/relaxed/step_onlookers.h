// Connects a step's reordered graphs with Onlookers (replayer/onlookers/onlookers.h): tells what memory they use, asks
// before each launch whether other work may be accessing it, and says which events the step's graphs and ops record.
//
// Does nothing until attach(): where all runs in the program's order there is nothing to look at. Not synchronised: the
// replayer's lock guards it; Onlookers has its own. Needs the step's context current where graphs are launched.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/bind/arena.h"
#include "replayer/bind/step_memory.h"
#include "replayer/match/op_match.h"
#include "replayer/onlookers/onlookers.h"
#include "replayer/relaxed/graphs_end.h"
#include "replayer/relaxed/relaxed_segments.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class StepOnlookers {
 public:
  // All must outlive it.
  StepOnlookers(const Schedule& schedule, const DriverApi& driver, const OpMatch& live, const StepStreams& streams,
                const Captures& captures, StepMemory& memory, const Arena& arena);

  // Whether some graphs run in another order than the program's.
  bool runs_relaxed() const { return segments_.any(); }
  // Before any call, where some do: these are told of them from now on. `are_through` asks end() with the replayer's
  // lock.
  void attach(Onlookers& onlookers, std::function<bool()> are_through);
  // No graph is launched any more.
  void detach() {
    if (onlookers_) onlookers_->leave(work_);
  }
  // When the last one has finished.
  GraphsEnd& end() { return end_; }

  // Graphs are to keep the program's order, as soon as no capture is in the way: somebody has looked, or may have
  // looked so often that this is the better way.
  void want_program_order() { order_due_ = true; }
  bool wants_program_order() const { return order_due_; }
  void keep_program_order() { order_due_ = false; }

  // Whether the segment's graph needs a look before it is launched in the schedule's order.
  bool watches(std::uint32_t segment) const { return onlookers_ && segments_.has(segment); }
  // It is about to be launched so. Nothing where somebody may be looking, or writing, while it runs; else launched()
  // has to follow.
  std::optional<Onlookers::Launch> launch_unseen();
  void launched(const std::optional<Onlookers::Launch>& launch, bool good);

  // The driver is about to have these ops of the segment as one graph, or has had it; `good`: with it the driver has
  // recorded their events.
  void batch_begins(std::uint32_t segment, std::span<const std::uint32_t> batch);
  void batch_recorded(std::uint32_t segment, bool good);
  // The driver is about to have the op by itself, or has had it.
  Onlookers::Passage op_comes(std::uint32_t index);
  void op_went(const Onlookers::Passage& passage, bool good) {
    if (onlookers_) onlookers_->recorded(passage, good);
  }

 private:
  void watch_memory();

  const Schedule& schedule_;
  const OpMatch& live_;
  const StepStreams& streams_;
  StepMemory& memory_;
  const Arena& arena_;
  const RelaxedSegments segments_;
  GraphsEnd end_;
  Onlookers* onlookers_ = nullptr;
  std::shared_ptr<Onlookers::Work> work_;
  bool is_in_gate_ = false;                   // its launch under way, which has not taken the lock of Onlookers
  std::vector<MemoryRange> ranges_;           // that it uses
  std::uint64_t moves_ = 0, arena_base_ = 0;  // as of which it does
  std::vector<Onlookers::Passage> recorded_;  // events that the graph records which is being launched
  std::uint32_t times_looked_at_ = 0;
  bool order_due_ = false;
};

}  // namespace nimble
