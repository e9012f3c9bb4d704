// What a policy makes of one segment: which node is on which lane, what order that enforces, and how long it would
// take.
//
// Plain data and a pure function; any thread. Nodes are indices into Segment::ops. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/model/makespan.h"
#include "analyzer/model/predict.h"
#include "analyzer/policies/policy.h"

namespace nimble::analyzer {

struct SegmentPlan {
  Assignment assignment;
  Dag enforced;
  std::vector<std::uint32_t> order;  // in which the nodes are to be made: topological
  std::uint32_t synchronizations = 0;
  double predicted_us = 0;
};

// `reduced` is the minimum equivalent graph of the segment's dependencies.
SegmentPlan make_plan(const DeviceModel& device, const Dag& reduced, std::span<const OpCost> costs,
                      Assignment assignment);
// The same, with the times that the prediction is made of.
SegmentPlan make_plan(const DeviceModel& device, const Dag& reduced, std::span<const OpCost> costs,
                      Assignment assignment, Timeline& times);

}  // namespace nimble::analyzer
