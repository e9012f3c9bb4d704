// A region: ops that a program has run once, and vouches that it wants again with the same addresses. They are launched
// as one graph, without the program's own code (include/nimble/nimble.h).
//
// Owns the graph, and the memory for what the region allocates and releases itself. Built by one thread; launched by
// any, also at once, where the driver allows it for one executable graph. Needs the region's context to be current
// while it is built and destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/driver/driver_api.h"
#include "replayer/order/touched.h"
#include "replayer/submit/region_values.h"
#include "replayer/submit/segment_graph.h"

namespace nimble {

class RegionGraph {
 public:
  // Both must outlive it.
  RegionGraph(CallContext& context, const DriverApi& driver);
  ~RegionGraph();
  RegionGraph(const RegionGraph&) = delete;
  RegionGraph& operator=(const RegionGraph&) = delete;

  // Why no graph can stand for the step; empty where one can.
  static std::string why_not(const Schedule& schedule);

  // Makes the graph. `earlier` are the allocations from before the region, `calls` those of the region, of which the
  // asynchronous ones that last are no ops of `schedule`. Returns why not; empty where all went well.
  std::string build(Schedule schedule, std::span<const Call> earlier, std::span<const RegionCall> calls);

  // With as little order as its ops need, or in the order of the program: never at the same time. The program's own may
  // be all there is.
  CUresult launch(CUstream stream, bool in_program_order) const {
    return (in_program_order && in_order_ ? in_order_ : graph_)->launch(stream);
  }
  bool has_two_orders() const { return in_order_ != nullptr; }

  // What must not be released as long as the region is to be launched. `all`: whatever was alive when it ran, since not
  // all that its kernels reach is known.
  bool uses_all() const { return uses_all_; }
  const std::vector<RegionMemory>& memory() const { return memory_; }
  bool records(CUevent event) const { return graph_ && graph_->records(event); }
  bool records_any() const;
  // What a launch touches, by address, but for what is meant by uses_all(); and whether its kernels use variables.
  std::vector<MemoryRange> touches() const;
  bool touches_variables() const;

  // The context is gone, and all that was in it.
  void abandon();

 private:
  std::string provide();
  std::string build_graphs(OpMatch& live);

  CallContext& context_;
  const DriverApi& driver_;
  decltype(&::cuMemFree) free_;
  Schedule schedule_;
  std::unique_ptr<SegmentGraph> graph_, in_order_;  // the latter where that is another order
  CUdeviceptr arena_ = 0;
  bool uses_all_ = false;
  std::vector<RegionMemory> memory_;
};

}  // namespace nimble
