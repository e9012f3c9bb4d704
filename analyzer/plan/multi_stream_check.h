// The program's streams in a schedule, and whether a step that uses several can be replayed.
//
// Replay launches a step's graphs on one stream, and joins the others to it. So work that the program has left
// unordered may come one behind the other: in a graph, from one graph to the next, from one step to the next. That is
// right only where all of it comes to its end by itself. Work that may be waiting for other work, on another stream or
// on the host, must keep what it had: two ops that share memory, an op of which nothing is known, a kernel that reaches
// memory that the host reaches, a wait for an event that something else records. Where the program has not put these in
// order with all that the other streams do, within the step and from one step to the next, there is no schedule.
//
// Pure; any thread. Op numbers are indices into the step; the result owns what it holds. No errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/plan/segments.h"
#include "analyzer/step/happens_before.h"
#include "analyzer/step/step_finder.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

// Of a step on more than kMaxStreams streams only `why_not` says anything.
struct StreamsOfStep {
  // The one that graphs are launched on first: one that waits, by the driver's rules, for whatever the others wait for,
  // and of these the one with the most work.
  std::vector<ScheduleStream> streams;
  std::vector<std::uint32_t> of_op;  // per op: index into `streams`
  std::string why_not;               // why replay cannot serve them; empty where it can
};

struct StreamsQuestion {
  const Trace& trace;
  const ObjectTable& table;
  const Step& step;
  const StepObjects& objects;
  const StepAccesses& accesses;
  const Segmentation& segments;
  const HappensBefore& order;
};

// Races within the step are not looked for: Dependencies has them.
StreamsOfStep streams_of_step(const StreamsQuestion& question);

}  // namespace nimble::analyzer
