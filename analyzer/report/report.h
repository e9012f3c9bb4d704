// The report that nimble-analyze prints, as text and as JSON.
//
// Pure functions over an immutable Analysis; any thread. Whatever the device model says is labelled as predicted.
// No errors: a trace without a step, or a step without a schedule, gives a report that says so.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

std::string text_report(const Analysis& analysis);

// One JSON object; its keys are listed in docs/reference/nimble-analyze.md.
std::string json_report(const Analysis& analysis);

// Ops of the step, gathered by kernel (or call) and reason, the most frequent first.
struct OpsWithReason {
  std::string what, why;
  std::uint32_t count = 0;
};
// Those whose accesses are assumed.
std::vector<OpsWithReason> assumed_ops(const Analysis& analysis);
// Those that may be talking to another process, another device or the host.
std::vector<OpsWithReason> communicating_ops(const Analysis& analysis);

// One line about a conflict of evidence: kernel, parameter, what said what.
std::string conflict_text(const Analysis& analysis, const EvidenceConflict& conflict);

// Figures that both reports show.
struct Counts {
  std::uint64_t ops_by_kind[static_cast<int>(CallKind::opaque) + 1] = {};
  std::uint64_t ops_by_submit[std::size(kSubmitNames)] = {};
  std::uint64_t ops_by_evidence[kEvidences] = {};
  std::uint64_t dependencies_by_kind[kDependencyKinds] = {};
  std::uint64_t dependencies_by_evidence[kEvidences] = {};
  std::uint64_t step_local_objects = 0, step_local_bytes = 0, external_objects = 0, external_bytes = 0;
  std::uint64_t calls = 0;                      // of a repeat, up to the op behind it: ops and all others
  std::uint64_t host_waits = 0;                 // places where the host waits for or looks at the GPU
  std::map<std::string, std::uint64_t> direct;  // ops that no graph holds, by reason
};
Counts count(const Analysis& analysis);

}  // namespace nimble::analyzer
