// How long ops take by the device model, and how long a step would take in a given order: a prediction, never a
// measurement.
//
// Graphs are list-scheduled: an op starts when all before it are done and the multiprocessors or the copy engine that
// it needs are free; among those that wait, the first in the given order goes first. Times in microseconds. Pure
// functions over immutable inputs; any thread. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/access.h"
#include "analyzer/dag.h"
#include "analyzer/segments.h"
#include "nimble/device_model.h"

namespace nimble::analyzer {

enum class Engine : std::uint8_t { none, multiprocessors, host_to_device, device_to_host, device_to_device };

struct OpCost {
  double device_us = 0;
  double host_us = 0;  // of submitting it by its own call
  Engine engine = Engine::none;
  int multiprocessors = 0;  // where the engine is these
};

// `measured_us` is per call how long the GPU was seen to take, negative where that is not known; the model stands in
// there.
std::vector<OpCost> predict_costs(const DeviceModel& device, const Trace& trace, const ObjectTable& table,
                                  std::span<const std::uint32_t> calls, std::span<const double> measured_us);

// A topological order of `dag` in which, of the nodes that could come next, the one with the longest way to the end
// comes first; then the one with the smallest number.
std::vector<std::uint32_t> critical_first(const Dag& dag, std::span<const double> duration_us);

// How long the graph takes on the device from its start. `costs` are per node, `order` is topological.
double predict_makespan(const DeviceModel& device, const Dag& dag, std::span<const OpCost> costs,
                        std::span<const std::uint32_t> order);

// A whole step, replayed: each segment as one graph, direct ops by their own calls.
double predict_replay(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs,
                      std::span<const double> segment_us);

// The same step as the program submits it: call by call, on one stream.
double predict_program(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs);

}  // namespace nimble::analyzer
