#include "replayer/submit/step_graphs.h"

#include <algorithm>
#include <string>

#include "replayer/driver/current_context.h"
#include "replayer/driver/result_name.h"
#include "replayer/step_order/program_order.h"

namespace nimble {

StepGraphs::StepGraphs(const Schedule& schedule, const StepPaths& paths, const DriverApi& driver, OpMatch& live,
                       const StepStreams& streams, StepTuning& tuning, StandAside& standing)
    : schedule_(schedule),
      paths_(paths),
      driver_(driver),
      live_(live),
      streams_(streams),
      tuning_(tuning),
      standing_(standing),
      up_to_date_(schedule.segments.size(), false) {
  drop();
}

void StepGraphs::drop() {
  way_ = Way::schedule;
  for (std::vector<SegmentGraph>* all : {&graphs_, &in_order_}) {
    all->clear();
    for (std::size_t i = 0; i < schedule_.segments.size(); ++i) all->emplace_back(driver_);
  }
}

bool StepGraphs::are_built(std::uint32_t kind) const {
  const auto segments = paths_.segments(kind);
  return std::all_of(segments.begin(), segments.end(), [&](std::uint32_t s) { return graphs_[s].built(); });
}

bool StepGraphs::any_built() const {
  const auto built = [](const SegmentGraph& graph) { return graph.built(); };
  return std::ranges::any_of(graphs_, built) || std::ranges::any_of(in_order_, built);
}

bool StepGraphs::build(std::uint32_t kind) {
  const CurrentContext current(driver_, streams_.context());
  const CUstream launch = streams_.launch().handle;
  for (const std::uint32_t s : paths_.segments(kind)) {
    if (graphs_[s].built()) continue;
    const ScheduleSegment& segment = schedule_.segments[s];
    up_to_date_[s] = true;
    if (tuning_.tries(kind, Way::one_stream) && !in_program_order_) {
      if (in_order_[s].build(schedule_, in_program_order(segment), live_, streams_.context(), launch) != CUDA_SUCCESS)
        tuning_.exclude(Way::one_stream);
    }
    const CUresult result = graphs_[s].build(schedule_, in_program_order_ ? in_program_order(segment) : segment, live_,
                                             streams_.context(), launch);
    if (result != CUDA_SUCCESS) {
      standing_.stand_aside("a graph could not be built (" + result_name(result) + ")");
      return false;
    }
  }
  return true;
}

CUresult StepGraphs::let_go(CUevent event) {
  for (std::vector<SegmentGraph>* all : {&graphs_, &in_order_})
    for (SegmentGraph& graph : *all) {
      if (!graph.records(event)) continue;
      const CurrentContext current(driver_, streams_.context());
      CUresult result = stand_in_ ? CUDA_SUCCESS : driver_.cuEventCreate_(&stand_in_, CU_EVENT_DISABLE_TIMING);
      if (result == CUDA_SUCCESS) result = graph.let_go(event, stand_in_);
      if (result != CUDA_SUCCESS) return result;
    }
  return CUDA_SUCCESS;
}

void StepGraphs::abandon() {
  for (std::vector<SegmentGraph>* all : {&graphs_, &in_order_})
    for (SegmentGraph& graph : *all) graph.abandon();
  stand_in_ = nullptr;
}

}  // namespace nimble
