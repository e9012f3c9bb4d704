// What is asked of the analyzer, and everything that it finds: what the reports say and the schedule is built from.
//
// An Analysis owns all of its parts. The stages (analyzer/stages/) fill it in, one after another and on one thread;
// from then on it is immutable, and any thread may read it. Op numbers are indices into the step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/access/conflicts.h"
#include "analyzer/access/trust.h"
#include "analyzer/base/errors.h"
#include "analyzer/graph/concurrency.h"
#include "analyzer/graph/dag.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/model/host_time.h"
#include "analyzer/model/measured.h"
#include "analyzer/model/predict.h"
#include "analyzer/order/dependencies.h"
#include "analyzer/order/parallelism.h"
#include "analyzer/plan/memory_plan.h"
#include "analyzer/plan/multi_stream_check.h"
#include "analyzer/plan/segments.h"
#include "analyzer/policies/policy.h"
#include "analyzer/policies/segment_plan.h"
#include "analyzer/rules/rules.h"
#include "analyzer/step/happens_before.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

struct AnalysisOptions {
  std::string policy = std::string(kPolicyNames[0]);
  std::uint32_t max_lanes = kDefaultMaxLanes;  // for policies that keep to a number of lanes
  // The most that the memory plan may take: where the policy's needs more, its schedule is made more sequential.
  std::optional<std::uint64_t> memory_limit;
  bool start_early = true;         // cut segments so that the GPU begins while the host is still issuing, or pauses
  bool one_kind = false;           // schedule only the kind of step that does the most work
  bool accept_partial = false;     // make a schedule though the recorder is known to have missed work
  Evidence trust = kDefaultTrust;  // the weakest evidence that is believed
  std::optional<StepPlace> step;   // the step, where it is not to be looked for
  bool memory_in_place = false;    // what the step allocates stays where the program had it, and no plan moves it
  Rules rules;
};

// What one policy makes of the step.
struct PolicyOutcome {
  std::string_view policy;
  std::uint32_t lanes = 0;  // of the segment that has the most
  std::uint64_t synchronizations = 0;
  double device_us = 0;  // of all segments, on the device alone
  double step_us = 0;    // of the step as it would be replayed, launches and waits included
};

struct Analysis {
  std::shared_ptr<const TraceFile> file;
  std::shared_ptr<const ObjectTable> table;
  Step step;
  // The other kinds of step that the program has beside this one, each as an Analysis of the same file; those that no
  // schedule can serve together with this one are left out, and `kinds_left_out` says why. They have no others.
  std::vector<Analysis> others;
  std::vector<std::string> kinds_left_out;

  // All below only where a step was found.
  StepObjects objects;
  StepAccesses accesses;
  Evidence trust = kDefaultTrust;
  std::vector<EvidenceConflict> conflicts;
  std::vector<std::uint64_t> led_nowhere;  // analyzer/access/non_pointer_words.h; where the step was not looked for
  std::unique_ptr<HappensBefore> order;
  Dependencies dependencies;
  Dag reduced;  // of the whole step
  Segmentation segments;
  StreamsOfStep streams;
  std::uint32_t early_cuts = 0;       // of them: how many cuts are there only so that the GPU begins early
  double uncut_us = 0;                // predicted by the chosen policy without these; 0 where there are none
  std::vector<std::uint32_t> pauses;  // ops before which segments are cut, since the host is long in coming to them
  MeasuredStep measured;
  HostTime host;
  std::vector<OpCost> costs;
  double program_us = 0;  // predicted: as the program submits it
  CriticalPath critical;
  Concurrency concurrency;
  std::vector<PolicyOutcome> policies;  // in the order of kPolicyNames
  std::string chosen;                   // the policy of `plans`
  std::vector<SegmentPlan> plans;       // per segment
  MemoryPlan memory;                    // under the order that `plans` enforce
  // What the policy's own plan would take, where `chosen` stands in for it because of the memory limit; else 0.
  std::uint64_t memory_without_limit = 0;
  Parallelism parallelism;  // of `plans`

  ExitStatus status = kExitOk;
  std::string why_no_schedule;  // where status is not kExitOk
};

}  // namespace nimble::analyzer
