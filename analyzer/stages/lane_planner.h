// Gives the ops of a step's segments to lanes, by a policy, and predicts what that takes.
//
// Refers to its arguments, which must outlive it. Pure once built; any thread. No errors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/model/predict.h"
#include "analyzer/plan/segments.h"
#include "analyzer/policies/segment_plan.h"
#include "analyzer/stages/find_order.h"
#include "analyzer/stages/predict_times.h"
#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {

// What one policy makes of the step.
struct PolicyOutcome {
  std::string_view policy;
  std::uint32_t lanes = 0;  // of the segment that has the most
  std::uint64_t synchronizations = 0;
  double device_us = 0;  // of all segments, on the device alone
  double step_us = 0;    // of the step as it would be replayed, launches and waits included
};

struct LanePlans {
  PolicyOutcome outcome;
  std::vector<SegmentPlan> plans;  // per segment
};

// The minimum equivalent graph of each segment, over its own nodes.
std::vector<Dag> graphs_of(const Segmentation& segments, const Dependencies& dependencies);

class LanePlanner {
 public:
  LanePlanner(const StepReading& reading, const StepOrder& order, const StepTimes& times, const Segmentation& segments);

  LanePlans plan(std::string_view policy, std::uint32_t max_lanes) const;

 private:
  const StepTimes& times_;
  const Segmentation& segments_;
  const DeviceModel device_;
  std::vector<Dag> graphs_;
  std::vector<std::vector<OpCost>> costs_;
  std::vector<std::vector<std::uint8_t>> communicate_;  // per segment and node
};

}  // namespace nimble::analyzer
