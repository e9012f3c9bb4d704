// When the host and the GPU would come to the ops of a step that is replayed: a prediction, never a measurement.
//
// A pure function over an immutable analysis; any thread. Times in microseconds, from when the host begins the step. No
// errors: without a schedule there are no times.
#pragma once

#include <vector>

#include "analyzer/analysis.h"
#include "nimble/internal/device_model.h"

namespace nimble::analyzer {

struct ReplayTimes {
  std::vector<double> begin_us,
      end_us;                       // per op on the GPU; negative for ops that take no time there. Empty: no schedule
  std::vector<std::uint32_t> lane;  // per op; 0 for ops that are in no graph
  struct Launch {
    double begin_us = 0, end_us = 0;  // of the host's call
    std::uint32_t nodes = 0;
  };
  std::vector<Launch> launches;  // of the graphs
  double step_us = 0;
};

ReplayTimes replay_times(const StepAnalysis& analysis, const DeviceModel& device);

}  // namespace nimble::analyzer
