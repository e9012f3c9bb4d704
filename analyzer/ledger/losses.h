// Where the GPU has nothing to do, or little, in one repeat of a step, and why: the entries of the idle ledger.
//
// The repeat is cut wherever an op begins, ends, or has been submitted, so that within a piece nothing changes. In an
// idle piece no op runs: either the host had not submitted the next op yet, or it had, and the GPU had yet to start it.
// In a narrow piece the ops that run fill less than half of the GPU's multiprocessors, by the device model: either an
// op that depends on nothing unfinished had been submitted and was kept back by the program's order; or such an op had
// not been submitted; or all that is left depends on what runs.
//
// Pure functions over an immutable analysis; any thread. Times in microseconds, on the trace's clock. No errors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analyzer/analysis.h"
#include "analyzer/ledger/repeat_times.h"
#include "nimble/internal/device_model.h"

namespace nimble::analyzer {

enum class LossCause : std::uint8_t {
  host_code,      // the host ran the program's own code
  host_call,      // the host was in a call, which did not wait for the GPU
  host_wait,      // the host was in a call that waits for the GPU
  start,          // all was submitted: the GPU had yet to start the op
  program_order,  // an op was kept back by the program's order alone
  evidence,       // ... by an order that is there because nothing is known of an op
  communication,  // ... by an order among ops that may be communicating
  dependency,     // ... by memory that both touch
  few_blocks,     // nothing of the step is left to run beside the op
  unknown,        // what ran then is not known
};

inline constexpr int kLossCauses = static_cast<int>(LossCause::unknown) + 1;

inline constexpr std::string_view name(LossCause cause) {
  constexpr std::string_view names[kLossCauses] = {"host code",     "host call", "host wait",     "start",
                                                   "program order", "evidence",  "communication", "dependency",
                                                   "few blocks",    "unknown"};
  return names[static_cast<int>(cause)];
}

struct Loss {
  double begin_us = 0, end_us = 0;
  bool idle = false;  // else narrow
  LossCause cause = LossCause::unknown;
  std::uint32_t op = kNone;       // that could have run; kNone: the next repeat's first, or none
  std::uint32_t held_by = kNone;  // narrow: an op of the repeat that ran, if any; of an order, the one before `op`
  std::uint32_t call = kNone;  // host_call, host_wait: which, an index into Trace::calls; host_code: the one after it
  const Dependency* dependency = nullptr;  // evidence, communication, dependency: owned by the analysis

  double us() const { return end_us - begin_us; }
};

// The share of the multiprocessors below which a GPU is called narrow.
inline constexpr double kNarrow = 0.5;

// Ascending, without overlap.
std::vector<Loss> find_losses(const StepAnalysis& analysis, const RepeatTimes& times, const DeviceModel& device);

}  // namespace nimble::analyzer
