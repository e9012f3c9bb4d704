#include "replayer/submit/region_graph.h"

#include <algorithm>
#include <utility>

#include "replayer/driver/result_name.h"
#include "replayer/match/op_text.h"
#include "replayer/step_order/program_order.h"

namespace nimble {

RegionGraph::RegionGraph(CallContext& context, const DriverApi& driver)
    : context_(context),
      driver_(driver),
      free_(reinterpret_cast<decltype(free_)>(context.driver_symbol("cuMemFree_v2"))) {}

RegionGraph::~RegionGraph() {
  graph_.reset();
  in_order_.reset();
  if (arena_ && free_) free_(arena_);
}

void RegionGraph::abandon() {
  for (const auto& graph : {graph_.get(), in_order_.get()})
    if (graph) graph->abandon();
  arena_ = 0;
}

std::string RegionGraph::why_not(const Schedule& schedule) {
  for (std::uint32_t i = 0; i < schedule.ops.size(); ++i) {
    const ScheduleOp& op = schedule.ops[i];
    if (op.submit == Submit::direct) return op_text(schedule, i) + " cannot be part of a graph";
    // The order would depend on contents that had to be checked at each launch.
    if (op.payload) return op_text(schedule, i) + " copies pointers that other ops follow";
    if (op.kind == CallKind::event_wait && op.record == kNone) return op_text(schedule, i) + " waits for earlier work";
  }
  // It may have addresses of the region's own memory in unknown places, and that memory moves.
  const auto barrier =
      std::find_if(schedule.ops.begin(), schedule.ops.end(), [](const ScheduleOp& op) { return op.barrier; });
  if (schedule.arena_bytes != 0 && barrier != schedule.ops.end())
    return op_text(schedule, static_cast<std::uint32_t>(barrier - schedule.ops.begin())) +
           " may use any memory, and the region allocates and releases some";
  if (schedule.carries) return "its order depends on pointers that are in memory before it begins";
  if (schedule.segments.size() != 1) return "it is not a single graph";
  return {};
}

std::string RegionGraph::build(Schedule schedule, std::span<const Call> earlier, std::span<const RegionCall> calls) {
  schedule_ = std::move(schedule);
  if (std::string why = why_not(schedule_); !why.empty()) return why;
  RegionValues values(schedule_, context_, driver_, earlier);
  std::string why = values.take(calls);
  if (why.empty()) why = provide();
  if (why.empty()) {
    values.place(arena_);
    why = build_graphs(values.live());
  }
  memory_ = values.memory();
  uses_all_ = values.uses_all();
  records_any_ = std::any_of(schedule_.ops.begin(), schedule_.ops.end(),
                             [](const ScheduleOp& op) { return op.kind == CallKind::event_record; });
  return why;
}

// Memory for its own allocations.
std::string RegionGraph::provide() {
  if (schedule_.arena_bytes == 0) return {};
  const CUresult result = driver_.cuMemAlloc_(&arena_, schedule_.arena_bytes);
  if (result == CUDA_SUCCESS) return {};
  arena_ = 0;
  return "no memory for its own " + std::to_string(schedule_.arena_bytes) + " bytes (" + result_name(result) + ")";
}

std::string RegionGraph::build_graphs(OpMatch& live) {
  CUcontext current = nullptr;
  driver_.cuCtxGetCurrent_(&current);
  const ScheduleSegment& segment = schedule_.segments.front();
  graph_ = std::make_unique<SegmentGraph>(driver_);
  CUresult result = graph_->build(schedule_, segment, live, current, nullptr);
  if (result == CUDA_SUCCESS && !has_program_order(segment)) {
    in_order_ = std::make_unique<SegmentGraph>(driver_);
    result = in_order_->build(schedule_, in_program_order(segment), live, current, nullptr);
  }
  if (result != CUDA_SUCCESS) return "its graph cannot be built (" + result_name(result) + ")";
  return {};
}

std::vector<MemoryRange> RegionGraph::touches() const {
  std::vector<MemoryRange> ranges;
  for (const RegionMemory& one : memory_)
    if (one.size != 0) ranges.push_back({one.base, one.base + one.size, true});
  if (arena_) ranges.push_back({arena_, arena_ + schedule_.arena_bytes, true});
  sort_and_merge(ranges);
  return ranges;
}

bool RegionGraph::touches_variables() const {
  return std::any_of(schedule_.functions.begin(), schedule_.functions.end(),
                     [](const auto& function) { return !function.globals.empty(); });
}

}  // namespace nimble
