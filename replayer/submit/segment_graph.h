// A segment as an executable CUDA graph: built once from live values, patched where they change, launched.
//
// Owns its graph and executable graph. Needs the step's context current when it is built, patched and launched. Not
// synchronised: the replayer's lock guards it. abandon() is for when the context is gone: nothing is destroyed then.
#pragma once

#include <vector>

#include "replayer/driver/driver_api.h"
#include "replayer/match/op_match.h"

namespace nimble {

class SegmentGraph {
 public:
  explicit SegmentGraph(const DriverApi& driver) : driver_(&driver) {}
  ~SegmentGraph();
  SegmentGraph(SegmentGraph&& other) noexcept;
  SegmentGraph& operator=(SegmentGraph&&) = delete;

  // Nodes in the segment's order, edges from the schedule, all values live in `live`; priorities above that of the
  // launch stream, as far as the device has any.
  CUresult build(const Schedule& schedule, const ScheduleSegment& segment, OpMatch& live, CUcontext context,
                 CUstream stream);

  // Updates the op's node to its live values. Earlier launches are not affected.
  CUresult patch(const Schedule& schedule, OpMatch& live, std::uint32_t index);

  // The op, an event record, records this event in later launches, until it is patched.
  CUresult record_instead(std::uint32_t index, CUevent event);

  // Whether some node records the event.
  bool records(CUevent event) const;
  // The event is about to be destroyed: nodes that record it record this one instead, until they are patched. The
  // driver cannot change a node whose event is gone (H200, 580.159).
  CUresult let_go(CUevent event, CUevent stand_in);

  bool built() const { return exec_ != nullptr; }
  CUresult launch(CUstream stream) const { return driver_->cuGraphLaunch_(exec_, stream); }

  void abandon() { graph_ = nullptr, exec_ = nullptr; }

 private:
  CUresult add_node(const Schedule& schedule, const OpMatch& live, std::uint32_t index,
                    const std::vector<CUgraphNode>& after);
  bool set_priorities(const Schedule& schedule, const ScheduleSegment& segment, CUstream stream) const;

  const DriverApi* driver_;
  CUcontext context_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::uint32_t first_ = 0;
  std::vector<CUgraphNode> nodes_;  // by op index minus first_
  std::vector<CUevent> events_;     // likewise: what the node records, null for those that record nothing
  std::vector<void*> scratch_;
};

}  // namespace nimble
