// The schedule of a captured graph: its nodes were recorded as the ops of one step, and memory that is allocated and
// released among them stays where it is. Nothing is compared when the graph is launched.
//
// One thread at a time. Slow. Throws nothing for what is in the trace; may throw std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/addresses/known_launches.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/rules/kept_rules.h"
#include "analyzer/step/step_finder.h"
#include "nimble/internal/evidence.h"
#include "nimble/internal/schedule.h"

namespace nimble::shim {

struct GraphSchedule {
  struct Written {
    TraceProbe::Range range;  // a whole allocation
    std::string by;           // for people: the first op that may write there
    bool tells = false;       // others can reach it, and nothing says that the op does not communicate by it
  };
  Schedule schedule;  // one segment
  // Why there is no schedule, or why it would make no two nodes independent; else empty.
  std::string why_not;
  std::string text;     // for people: what the schedule holds
  std::string beliefs;  // for the log, if its order rests on any; else empty

  // The rest is filled in even if there is no schedule, as far as it is known.

  // Memory that its ops name: whole allocations, by address.
  std::vector<TraceProbe::Range> memory;
  // Memory that its ops may write, except what is allocated among them: whole allocations, by address. Nothing if that
  // is not known of some op, or an op communicates other than by memory that is listed.
  std::optional<std::vector<Written>> writes;
  // For people: ops that are ordered with everything because nothing is known about them; each sort of them with the
  // reason and how often it occurs, the most frequent first.
  std::vector<std::string> unknown;
  // Where the memory plan would put its allocations, in their order: bytes from the start of one block.
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> nowhere;  // words of its ops that look like addresses and were taken not to be
};

// Pairs of ops, the first before the second, that the program itself has put in order; nothing if its order is that of
// the step.
using GivenOrder = std::optional<std::vector<std::array<std::uint32_t, 2>>>;

// `known` may be null; else it keeps what was found of launches for the next graph.
GraphSchedule graph_schedule(const analyzer::GrowingTrace& trace, const analyzer::StepPlace& place,
                             const GivenOrder& given, analyzer::KeptRules& rules, Evidence trust,
                             std::shared_ptr<analyzer::KnownKernels> known);

}  // namespace nimble::shim
