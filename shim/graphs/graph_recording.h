// What NIMBLE_GRAPHS=rewrite puts into the recording itself: the nodes of graphs, as ops of a marked step, and the
// memory that captures got from the pool.
//
// One graph is recorded at a time: whoever records nodes holds a lock of the owner's. The rest may come from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/step_finder.h"
#include "nimble/call.h"
#include "shim/auto/make_schedule.h"
#include "shim/graphs/capture_pool.h"
#include "shim/graphs/program_graph.h"
#include "shim/recorder.h"
#include "shim/trace_store.h"

namespace nimble::shim {

class GraphRecording {
 public:
  // Both must outlive it.
  GraphRecording(Recorder& recorder, const TraceStore& store) : recorder_(recorder), store_(store) {}

  // A graph's nodes in the recording: where, and which node each op is; kNone for those that are none.
  struct Nodes {
    analyzer::StepPlace place;
    std::vector<std::uint32_t> node;
    GivenOrder given;  // of these ops
    std::string why_not;
  };
  // The nodes as ops, one behind the other: what they do when the graph is launched. With memory, what the capture has
  // allocated and released as ops among them. Waits until they are written. `number`: the step's name.
  Nodes nodes(const ProgramGraph& original, const CaptureMemory* memory, std::uint64_t number);
  // The memory of a capture as whoever looks at anything but its nodes may take it: as it is while no graph runs.
  void memory(const CaptureMemory& memory);
  // It has gone back to the driver.
  void gone(const std::vector<CapturePool::Slot>& slots);

 private:
  void record(Call call);

  Recorder& recorder_;
  const TraceStore& store_;
};

// Where the memory plan of a graph's schedule has the allocations of its capture; null where it does not tell.
std::shared_ptr<const CapturePlan> capture_plan(const CaptureMemory& memory, const GraphSchedule& schedule);

}  // namespace nimble::shim
