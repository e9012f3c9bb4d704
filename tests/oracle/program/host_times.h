// The times that a random program takes between its calls.
#pragma once

#include "nimble/internal/trace.h"
#include "tests/oracle/program/random.h"

namespace nimble::oracle {

// Half of the programs take their time, so that segments are cut for the GPU to begin early. Instead of the times that
// the machine took, which would make another program of the same seed.
inline void invent_host_times(Trace& trace, Random random) {
  const std::uint32_t most_us = random.percent(50) ? random.between(1, 30) : 0;
  double now = 0;
  for (TraceCall& call : trace.calls) {
    call.host_begin_us = now += random.between(0, most_us);
    call.host_duration_us = 1;
    now += 1;
  }
}

}  // namespace nimble::oracle
