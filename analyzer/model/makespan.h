// How long a graph would take on the device: a prediction by a simulation of it, never a measurement.
//
// The nodes that are ready are dispatched one after another. A kernel is a number of waves of blocks on a number of
// multiprocessors: a wave on one multiprocessor starts when that is free, and runs to its end. Free multiprocessors go
// to the op of the highest priority; then to the one that has been ready the longest, as in the hardware's own queue;
// then to the first in the given order. Copy engines take one op at a time, in the same way. If ops together want more
// than the memory's bandwidth, they share it evenly, and those that want more than their share slow down. Times in
// microseconds.
//
// Pure; any thread. Time is near linear in nodes and edges. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/model/predict.h"

namespace nimble::analyzer {

// From the start of the graph to the end of its last op. `costs` are per node, `order` is topological; `priority` is
// per node, or empty if all are the same.
double predict_makespan(const DeviceModel& device, const Dag& dag, std::span<const OpCost> costs,
                        std::span<const std::uint32_t> order, std::span<const std::uint8_t> priority = {});

// The same, with the times at which each node starts and ends.
struct Timeline {
  std::vector<double> begin_us, end_us;
};
double predict_makespan(const DeviceModel& device, const Dag& dag, std::span<const OpCost> costs,
                        std::span<const std::uint32_t> order, std::span<const std::uint8_t> priority,
                        Timeline& timeline);

}  // namespace nimble::analyzer
