// The idle ledger: for what the GPU was idle or narrow in a repeat of the step, summed up by cause.
//
// Pure functions over an immutable analysis; any thread. Times in microseconds. No errors: without times of the GPU
// there is a ledger without entries, whose RepeatTimes say so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/ledger/losses.h"

namespace nimble::analyzer {

// Losses of one cause that people would call one thing.
struct LedgerEntry {
  LossCause cause = LossCause::unknown;
  std::string what;  // "before launch add<float>"
  double idle_us = 0, narrow_us = 0;
  std::uint32_t places = 0;  // stretches of time
  Loss largest;              // the longest of them; what it says of ops is so at its begin

  double us() const { return idle_us + narrow_us; }
};

struct Ledger {
  RepeatTimes times;
  double step_us = 0, idle_us = 0, narrow_us = 0;
  std::vector<LedgerEntry> entries;  // the largest first; they sum up to idle_us + narrow_us

  double of(LossCause cause) const;
};

// Why there is no ledger: what the trace lacks.
inline constexpr const char* kNoTimes = "no times of the GPU: record with NIMBLE_TIMING=cupti, or events";

Ledger idle_ledger(const StepAnalysis& analysis, const DeviceModel& device);

// What can be done about losses of this cause; one sentence.
const char* remedy(LossCause cause);

// For a terminal: the sums, at most `most` entries, and what can be done.
std::string ledger_text(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device,
                        std::size_t most);

// One JSON object; docs/reference/nimble-analyze.md lists its keys.
std::string ledger_json(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device);

}  // namespace nimble::analyzer
