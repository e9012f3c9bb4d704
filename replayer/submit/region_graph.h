// A region: ops that a program has run once, and guarantees to want again with the same addresses. They are launched as
// one graph, without the program's own code (include/nimble/nimble.h).
//
// Owns the graph, and the memory for the region's own allocations. Built by one thread; launched by any, also
// concurrently, as the driver allows for one executable graph. Needs the region's context current when it is built and
// destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/driver/driver_api.h"
#include "replayer/onlookers/touched.h"
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

  // Why no graph can replace the step; empty if one can.
  static std::string why_not(const Schedule& schedule);

  // Makes the graph. `earlier` are the allocations from before the region, `calls` the region's own, of which lasting
  // asynchronous allocations are not ops of `schedule`. Returns why not; empty on success.
  std::string build(Schedule schedule, std::span<const Call> earlier, std::span<const RegionCall> calls);

  // With as little order as its ops need, or in program order: never both concurrently. There may be only the latter.
  CUresult launch(CUstream stream, bool in_program_order) const {
    return (in_program_order && in_order_ ? in_order_ : graph_)->launch(stream);
  }
  bool has_two_orders() const { return in_order_ != nullptr; }

  // Memory that must not be released while the region is in use. `all`: everything that was live when it ran, since its
  // kernels may reach unknown memory.
  bool uses_all() const { return uses_all_; }
  const std::vector<RegionMemory>& memory() const { return memory_; }
  bool records(CUevent event) const { return graph_ && graph_->records(event); }
  bool records_any() const { return records_any_; }
  // What a launch touches, by address, without what uses_all() stands for; and whether its kernels use variables.
  std::vector<MemoryRange> touches() const;
  bool touches_variables() const;

  // Of the memory for its own allocations.
  std::uint64_t arena_bytes() const { return arena_ ? schedule_.arena_bytes : 0; }

  // The context is gone, and everything in it.
  void abandon();

 private:
  std::string provide();
  std::string build_graphs(OpMatch& live);

  CallContext& context_;
  const DriverApi& driver_;
  decltype(&::cuMemFree) free_;
  Schedule schedule_;
  std::unique_ptr<SegmentGraph> graph_, in_order_;  // the latter if that is a different order
  CUdeviceptr arena_ = 0;
  bool uses_all_ = false, records_any_ = false;
  std::vector<RegionMemory> memory_;
};

}  // namespace nimble
