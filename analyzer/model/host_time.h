// How long the program's own code takes on the host between the ops of its step, as the trace shows it.
//
// For each op the median over the repeats of the step. Repeats in which kernels were probed (NIMBLE_PROBE) do not
// count, because there the recorder took the time. Waits for the GPU do not count either: how long they take is for the
// prediction to say. Times in microseconds. A pure function over an immutable trace; any thread. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/step/step_finder.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

struct HostTime {
  // Per op: from the end of the previous op's call to the start of its own. 0 for the first. All are 0 if nothing is
  // known.
  std::vector<double> before_us;
  std::uint32_t repeats = 0;  // from which it is known; 0: nothing is known
};

HostTime host_time(const Trace& trace, const Step& step);

// Half of the time after which replay submits held ops call by call, because the program might be watching the GPU
// without a call (NIMBLE_HOLD_US): a pause this long may well be twice as long the next time.
inline constexpr double kPauseUs = 500;

// The ops before which the program pauses for that long, ascending: a segment across a pause would often be cut there
// by force, and not be a graph.
std::vector<std::uint32_t> pauses(const HostTime& host);

}  // namespace nimble::analyzer
