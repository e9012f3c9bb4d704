// The executable graphs of a step's segments: by the schedule, and in the program's order while that is tried or used.
//
// Owns them, and says which of a segment's two is the one to launch. Needs the step's context current where graphs are
// launched or patched. Not synchronised: the replayer's lock guards it. Errors: replay stands aside where a graph
// cannot be built; else the driver's CUresult.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"
#include "nimble/internal/step_paths.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/match/op_match.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/submit/segment_graph.h"
#include "replayer/tune/step_tuning.h"

namespace nimble {

class StepGraphs {
 public:
  // All must outlive it.
  StepGraphs(const Schedule& schedule, const StepPaths& paths, const DriverApi& driver, OpMatch& live,
             const StepStreams& streams, StepTuning& tuning, StandAside& standing);

  // The kind's graphs that no other kind has had built yet. False where replay stands aside.
  bool build(std::uint32_t kind);
  bool is_built(std::uint32_t segment) const { return graphs_[segment].built(); }
  // All of the kind's; or any at all.
  bool are_built(std::uint32_t kind) const;
  bool any_built() const;
  // All go. The next ones begin by the schedule.
  void drop();
  // The context is gone, and all graphs with it.
  void abandon();

  // The way in which steps are submitted from now on; not Way::own.
  void use(Way way) {
    if (way == way_) return;
    way_ = way;
    up_to_date_.assign(up_to_date_.size(), false);
  }
  Way way() const { return way_; }
  // Graphs that are built from now on keep the program's order.
  void keep_program_order() { in_program_order_ = true; }
  bool keeps_program_order() const { return in_program_order_; }
  // Whether the segment's does now.
  bool keeps_program_order(std::uint32_t segment) const { return in_program_order_ || uses_second(segment); }

  // The graph of the segment that is launched.
  SegmentGraph& operator[](std::uint32_t segment) {
    return uses_second(segment) ? in_order_[segment] : graphs_[segment];
  }
  // Whether it has all values but of those ops that have changed since.
  bool is_up_to_date(std::uint32_t segment) const { return up_to_date_[segment]; }
  void set_up_to_date(std::uint32_t segment, bool is) { up_to_date_[segment] = is; }

  // The program is about to destroy the event: no node goes on naming it. What the driver says; where that is no
  // success the step has to be bound anew.
  CUresult let_go(CUevent event);

 private:
  bool uses_second(std::uint32_t segment) const { return way_ == Way::one_stream && in_order_[segment].built(); }

  const Schedule& schedule_;
  const StepPaths& paths_;
  const DriverApi& driver_;
  OpMatch& live_;
  const StepStreams& streams_;
  StepTuning& tuning_;
  StandAside& standing_;
  std::vector<SegmentGraph> graphs_, in_order_;  // by segment
  std::vector<bool> up_to_date_;                 // by segment: see is_up_to_date()
  Way way_ = Way::schedule;
  bool in_program_order_ = false;
  CUevent stand_in_ = nullptr;  // what nodes record after their event was destroyed
};

}  // namespace nimble
