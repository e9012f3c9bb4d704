// The executable graphs of a step's segments: in the schedule's order, and in the program's while that is tried or
// used.
//
// Owns them, and decides which of a segment's two to launch. Needs the step's context current when graphs are launched
// or patched. Not synchronised: the replayer's lock guards it. Errors: if a graph cannot be built replay stands aside;
// else the driver's CUresult.
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

  // Builds the kind's missing graphs. False if replay stands aside.
  bool build(std::uint32_t kind);
  bool is_built(std::uint32_t segment) const { return graphs_[segment].built(); }
  // Whether all of the kind's are built; or any at all.
  bool are_built(std::uint32_t kind) const;
  bool any_built() const;
  // Destroys all. The next ones start with the schedule's order.
  void drop();
  // The context is gone, and all graphs with it.
  void abandon();

  // How steps are submitted from now on; not Way::own.
  void use(Way way) {
    if (way == way_) return;
    way_ = way;
    up_to_date_.assign(up_to_date_.size(), false);
  }
  Way way() const { return way_; }
  // Graphs that are built from now on keep the program's order.
  void keep_program_order() { in_program_order_ = true; }
  bool keeps_program_order() const { return in_program_order_; }
  // Whether the segment's graph does now.
  bool keeps_program_order(std::uint32_t segment) const { return in_program_order_ || uses_second(segment); }

  // The graph of the segment that is launched.
  SegmentGraph& operator[](std::uint32_t segment) {
    return uses_second(segment) ? in_order_[segment] : graphs_[segment];
  }
  // Whether it has all values, except those changed since.
  bool is_up_to_date(std::uint32_t segment) const { return up_to_date_[segment]; }
  void set_up_to_date(std::uint32_t segment, bool is) { up_to_date_[segment] = is; }

  // The program is about to destroy the event: makes no node name it. The driver's result; unless it is success the
  // step has to be bound anew.
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
