#include "analyzer/policies/segment_plan.h"

#include <utility>

namespace nimble::analyzer {

SegmentPlan make_plan(const DeviceModel& device, const Dag& reduced, std::span<const OpCost> costs,
                      Assignment assignment) {
  Timeline times;
  return make_plan(device, reduced, costs, std::move(assignment), times);
}

SegmentPlan make_plan(const DeviceModel& device, const Dag& reduced, std::span<const OpCost> costs,
                      Assignment assignment, Timeline& times) {
  SegmentPlan plan;
  plan.assignment = std::move(assignment);
  plan.enforced = enforced_order(reduced, plan.assignment);
  plan.synchronizations = count_synchronizations(plan.enforced, plan.assignment);
  if (plan.assignment.order.empty()) {
    std::vector<double> duration;
    duration.reserve(costs.size());
    for (const OpCost& cost : costs) duration.push_back(cost.device_us);
    plan.order = critical_first(plan.enforced, duration);
  } else {
    plan.order = plan.assignment.order;
  }
  plan.predicted_us = predict_makespan(device, plan.enforced, costs, plan.order, plan.assignment.priority, times);
  return plan;
}

}  // namespace nimble::analyzer
