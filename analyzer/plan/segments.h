// Cuts the step into segments, and decides how each op is submitted.
//
// A segment is a run of ops that one graph can submit: nothing in it is direct, and the program does not look at the
// GPU's progress from inside it. Waits for events that the step records itself take no node: what they order is in the
// graph's edges, or in the order of the graphs. Where the program looks is read from all occurrences of the step: a
// call counts if it is at the same place in at least half of them. Owns its lists; op numbers are indices into the
// step. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/step/step_finder.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

struct Segment {
  std::vector<std::uint32_t> ops;  // its graph ops, ascending; at least two
};

struct Segmentation {
  std::vector<Submit> submit;           // per op
  std::vector<const char*> why_direct;  // per op: why it is direct, else null
  std::vector<std::uint32_t> segment;   // per op: index into `segments`, kNone if it is in none
  // Order ops, which are not nodes: the segment that they come with; and the op that has recorded the event, kNone if
  // an earlier step has. Both are kNone for all other ops.
  std::vector<std::uint32_t> comes_with, record;
  std::vector<std::uint8_t> waits_elsewhere;  // per op: it waits for an event that the step is not known to record
  std::vector<std::uint8_t> observed;         // per op: the host waits or looks just before it
  bool observed_at_end = false;               // and once more after the last
  std::vector<Segment> segments;
  std::vector<std::uint32_t> cuts;  // ops before which a segment must end, as they were given
};

// Determines for each order op which segment it comes with: that of the next node of its run, else that of the previous
// one. In a run without nodes it becomes direct. To be called again when segments have been cut differently.
void place_waits(Segmentation& segments);

// `cuts`: ops before which a segment must end, ascending. `min_graph_ops`: runs with fewer graph ops than this are
// submitted directly.
Segmentation cut_into_segments(const Trace& trace, const Step& step, const StepAccesses& accesses,
                               std::span<const std::uint32_t> cuts = {}, std::uint32_t min_graph_ops = 2);

}  // namespace nimble::analyzer
