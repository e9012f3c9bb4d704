// The schedule of a region: the one step that the program has marked in a recorded trace.
//
// One thread at a time. Slow. Throws nothing for what is in the trace; may throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/evidence.h"

namespace nimble::shim {

// As one graph, if that is possible. The step's asynchronous allocations at the addresses `lasting` outlive it and are
// not among its ops. Without text if there is no schedule: `why_not` says more.
struct RegionSchedule {
  std::string text, why_not;
  std::string beliefs;  // for the log, if its order rests on any; else empty
};
RegionSchedule region_schedule(const TraceStore::Text& text, const std::vector<std::uint64_t>& lasting,
                               analyzer::KeptRules& rules, Evidence trust);

}  // namespace nimble::shim
