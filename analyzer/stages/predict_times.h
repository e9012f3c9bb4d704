// Stage "times": what the host and the device take for the ops of a step, measured or predicted.
//
// Pure; any thread. No errors. Times in microseconds.
#pragma once

#include <vector>

#include "analyzer/model/host_time.h"
#include "analyzer/model/measured.h"
#include "analyzer/model/predict.h"
#include "analyzer/stages/find_order.h"
#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {

// Owns what it holds.
struct StepTimes {
  MeasuredStep measured;
  HostTime host;
  std::vector<OpCost> costs;  // per op
  CriticalPath critical;
};

StepTimes predict_times(const StepReading& reading, const StepOrder& order);

}  // namespace nimble::analyzer
