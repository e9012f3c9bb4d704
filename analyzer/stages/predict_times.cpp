#include "analyzer/stages/predict_times.h"

namespace nimble::analyzer {

StepTimes predict_times(const StepReading& reading, const StepOrder& order) {
  const Trace& trace = reading.input.trace();
  StepTimes result;
  result.measured = measure(trace, reading.step);
  result.host = host_time(trace, reading.step);
  result.costs = predict_costs(DeviceModel(), trace, *reading.input.table, reading.step.calls(), reading.objects,
                               reading.evidence.accesses, result.measured.op_us);
  std::vector<double> duration;
  for (const OpCost& cost : result.costs) duration.push_back(cost.device_us);
  result.critical = critical_path(order.reduced, duration);
  return result;
}

}  // namespace nimble::analyzer
