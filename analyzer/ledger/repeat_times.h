// One repeat of the step as it ran on the GPU: the one that the ledger accounts for.
//
// Pure functions over an immutable trace; any thread. Times in microseconds, on the trace's clock. No errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/step/step_finder.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// Whether it is known when the GPU ran a call's op.
bool is_timed(const TraceCall& call);

struct RepeatTimes {
  std::uint32_t occurrence = 0;          // index into Step::begins
  std::uint32_t repeats = 0;             // how many could have been chosen; 0: none, and nothing else is filled in
  std::vector<double> begin_us, end_us;  // per op; negative if the time is not known
  std::uint32_t untimed = 0;             // ops that do work, and whose time is not known
  // Whether the host's times and the GPU's can be compared: nothing begins before it was submitted. Simulated times of
  // the GPU cannot.
  bool one_clock = true;
  double from_us = 0, until_us = 0;  // from the first op's begin ...
  std::uint32_t next_call = kNone;   // ... to that of this call, the next repeat's first; kNone: to the last end
};

// Of the repeats that are followed at once by another, and in which the time of every op is known that is known in any,
// the one whose length is the median; if none is followed at once, of all. Repeats with probed kernels do not count.
RepeatTimes median_repeat(const Trace& trace, const Step& step);

}  // namespace nimble::analyzer
