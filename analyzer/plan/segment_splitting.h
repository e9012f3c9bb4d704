// Cuts segments further, so that the GPU starts while the host is still issuing the rest of the step.
//
// A graph is launched when the last op of its segment has come. One segment for the whole step leaves the GPU idle
// until the host has gone through all of it, which is the longer part of the time if a framework dispatches call by
// call; many segments lose the concurrency across their cuts and pay for more launches. If nothing in the step waits
// for the GPU, the host is ahead of it anyway, and nothing is cut.
//
// Each segment is cut by dynamic programming over a bounded number of places (kCutPlaces, evenly spread over the time
// in which its ops come). A piece starts when the piece before it ends or its own last op arrives, whichever is later;
// then it takes at least its critical path, and at least what its ops need of the multiprocessors, the memory and the
// buses. These bounds stand for the time itself, so the proposal has to be planned and predicted (predict_replay)
// before it is preferred. Times in microseconds. A pure function; any thread. No errors.
#pragma once

#include <span>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/model/host_time.h"
#include "analyzer/model/predict.h"
#include "analyzer/plan/segments.h"

namespace nimble::analyzer {

inline constexpr std::uint32_t kCutPlaces = 32;

// `graphs`: the dependencies inside each segment, over its own nodes. Returns the same segments if nothing is gained.
Segmentation split_segments(const DeviceModel& device, const Segmentation& segments, std::span<const Dag> graphs,
                            std::span<const OpCost> costs, const HostTime& host);

}  // namespace nimble::analyzer
