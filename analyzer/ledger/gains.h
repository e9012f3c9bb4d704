// What a step would take without the losses that Nimble can do away with: predictions from a ledger.
//
// Pure functions over an immutable analysis; any thread. Times in microseconds. No errors. bench/prediction/gains.py
// holds them against a GPU.
#pragma once

#include <optional>

#include "analyzer/ledger/ledger.h"

namespace nimble::analyzer {

struct Gains {
  // As one CUDA graph, in the program's order: the host submits nothing in between, and the GPU waits for it no more.
  // What is left is what ops take, and the idle time that has other causes.
  double graph_us = 0;
  // As a graph with the chosen schedule's streams: less by as much as the device model says that this schedule takes
  // less time than the same graphs with one stream.
  std::optional<double> streams_us;
  // By mode replay, in which the program still makes its calls: by the device model alone.
  std::optional<double> replay_us;
};

// Nothing where host and GPU have different clocks, so that it is not known what the host is to blame for.
std::optional<Gains> predict_gains(const StepAnalysis& analysis, const Ledger& ledger);

}  // namespace nimble::analyzer
