// Figures that the text report and the JSON report share. Pure; any thread. No errors.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

// Ops of the step, grouped by kernel (or call) and reason, the most frequent first.
struct OpsWithReason {
  std::string what, why;
  std::uint32_t count = 0;
};
// Those whose accesses are assumed.
std::vector<OpsWithReason> assumed_ops(const StepReading& step);
// Those that may be communicating with another process, another device or the host.
std::vector<OpsWithReason> communicating_ops(const StepReading& step);

// One line about a conflict of evidence: kernel, parameter, and the source that it contradicts.
std::string conflict_text(const StepReading& step, const EvidenceConflict& conflict);

struct Counts {
  std::uint64_t ops_by_kind[static_cast<int>(CallKind::opaque) + 1] = {};
  std::uint64_t ops_by_submit[std::size(kSubmitNames)] = {};
  std::uint64_t ops_by_evidence[kEvidences] = {};
  std::uint64_t dependencies_by_kind[kDependencyKinds] = {};
  std::uint64_t dependencies_by_evidence[kEvidences] = {};
  std::uint64_t step_local_objects = 0, step_local_bytes = 0, external_objects = 0, external_bytes = 0;
  std::uint64_t calls = 0;                      // of a repeat, up to the op after it: ops and all others
  std::uint64_t host_waits = 0;                 // places where the host waits for the GPU or looks at it
  std::map<std::string, std::uint64_t> direct;  // ops that are in no graph, by reason
};
Counts count(const StepAnalysis& analysis);

}  // namespace nimble::analyzer
