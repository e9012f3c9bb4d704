// What the report's page shows, as JSON: lists by column, since there may be ten thousands of ops.
//
// Pure; any thread. Times in microseconds from the begin of the repeat that is shown; its ops are numbered as in the
// step. No errors.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/analysis.h"
#include "analyzer/ledger/ledger.h"
#include "nimble/internal/device_model.h"

namespace nimble::analyzer {

// Ops beyond these are left out of the page, which says so: it is to stay below 5 MB.
inline constexpr std::uint32_t kMostOpsOfPage = 12'000;

// `from`: the first op to show.
std::string page_data(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device,
                      std::uint32_t from);

}  // namespace nimble::analyzer
