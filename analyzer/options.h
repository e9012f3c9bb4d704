// What the analyzer is asked: which step, which policy, what evidence to believe, which rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "analyzer/access/trust.h"
#include "analyzer/addresses/known_launches.h"
#include "analyzer/policies/policy.h"
#include "analyzer/rules/rules.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

struct AnalysisOptions {
  std::string policy = std::string(kPolicyNames[0]);
  std::uint32_t max_lanes = kDefaultMaxLanes;  // for policies that keep to a number of lanes
  // The most that the memory plan may take. A schedule that needs more is made more sequential.
  std::optional<std::uint64_t> memory_limit;
  bool start_early = true;         // cut segments so that the GPU starts while the host is still issuing, or pauses
  bool one_kind = false;           // schedule only the kind of step that does the most work
  bool accept_partial = false;     // make a schedule even if the recorder is known to have missed work
  Evidence trust = kDefaultTrust;  // the weakest evidence that is believed
  std::optional<StepPlace> step;   // the step, if it is given rather than searched for
  bool memory_in_place = false;    // the step's allocations stay where the program had them; no plan moves them
  Rules rules;
  // What other analyses have found of launches; none of it matters to the result. Null: this one keeps its own.
  std::shared_ptr<KnownKernels> known;
};

}  // namespace nimble::analyzer
