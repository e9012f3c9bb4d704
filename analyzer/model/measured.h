// How long ops took on the GPU according to the trace, over all repeats of the step.
//
// Times in microseconds. A pure function over an immutable trace; any thread. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/step/step_finder.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

struct MeasuredStep {
  // Per op of the step: the median over the repeats whose time is known. Negative if none is.
  std::vector<double> op_us;
  std::uint32_t ops = 0;      // ops whose time is known
  std::uint32_t repeats = 0;  // repeats in which the times of all these ops are known
  // Medians over those repeats: the time during which at least one op ran, and from the first op's start to the last
  // one's end.
  double busy_us = 0, span_us = 0;
};

MeasuredStep measure(const Trace& trace, const Step& step);

}  // namespace nimble::analyzer
