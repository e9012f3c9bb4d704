// How long ops take by the device model: a prediction, never a measurement.
//
// What a graph takes on the device is predicted in makespan.h, and what a step takes in analyzer/plan/host_clocks.h.
// Times in microseconds. Pure functions over immutable inputs; any thread. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/graph/dag.h"
#include "nimble/internal/device_model.h"

namespace nimble::analyzer {

struct OpCost {
  double device_us = 0;  // alone on the device
  double host_us = 0;    // of submitting it by its own call
  Engine engine = Engine::none;
  int multiprocessors = 0;  // that it fills, if it runs on these
  int waves = 1;            // how many times its blocks fill them
  double bandwidth = 0;     // the share of the device's memory bandwidth that it uses then, 0 to 1
};

// Whether two such ops side by side gain next to nothing over one after the other.
inline bool is_bandwidth_bound(const OpCost& cost) { return cost.bandwidth >= 0.5; }

// `measured_us`: per op, how long the GPU was seen to take; negative if that is not known, then the model is used.
std::vector<OpCost> predict_costs(const DeviceModel& device, const Trace& trace, const ObjectTable& table,
                                  std::span<const std::uint32_t> calls, const StepObjects& objects,
                                  const StepAccesses& accesses, std::span<const double> measured_us);

// The share of the device's memory bandwidth that an op uses that touches so many bytes. `exact`: it touches all of
// them. Else it may touch fewer, and it does if it would otherwise be faster than the device's memory.
double bandwidth_share(const DeviceModel& device, const OpCost& cost, std::uint64_t bytes, bool exact);

// A topological order of `dag`: among the nodes that could come next, the one with the longest path to the end comes
// first; then the one with the smallest number.
std::vector<std::uint32_t> critical_first(const Dag& dag, std::span<const double> duration_us);

}  // namespace nimble::analyzer
