// The program's streams in a schedule, and whether a step that uses several can be replayed.
//
// Replay launches a step's graphs on one stream, and joins the others to it. So work that the program has left
// unordered may end up in sequence: in a graph, from one graph to the next, from one step to the next. That is only
// right if all of it finishes by itself. Work that may be waiting for other work, on another stream or on the host,
// must keep the order that it had: two ops that share memory, an op that nothing is known about, a kernel that can
// reach memory that the host can reach, a wait for an event that something else records. If the program has not ordered
// these with all that the other streams do, within the step and from one step to the next, there is no schedule.
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

// For a step on more than kMaxStreams streams only `why_not` is filled in.
struct StreamsOfStep {
  // The first is the one that graphs are launched on: one that waits, by the driver's rules, for whatever the others
  // wait for, and among these the one with the most work.
  std::vector<ScheduleStream> streams;
  std::vector<std::uint32_t> of_op;  // per op: index into `streams`
  std::string why_not;               // why replay cannot serve them; empty if it can
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

// Does not look for races within the step: Dependencies has them.
StreamsOfStep streams_of_step(const StreamsQuestion& question);

}  // namespace nimble::analyzer
