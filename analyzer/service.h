// From the text of a trace to the text of a schedule, as nimble-analyze does it, for NIMBLE_MODE=auto.
//
// A Trial is one look at what has been recorded so far. Not synchronised, and slow: for a background thread. Neither
// step throws for anything that is in the trace; std::bad_alloc may come out of both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/input/trace_reader.h"
#include "analyzer/input/trace_store.h"
#include "analyzer/rules/kept_rules.h"
#include "analyzer/step/step_finder.h"
#include "nimble/internal/schedule.h"

namespace nimble::shim {

class Trial {
 public:
  using Source = std::function<std::size_t(char* buffer, std::size_t size)>;

  // `rules`: files, asked before the rules that come with the analyzer.
  Trial(TraceStore::Text text, std::vector<std::string> rules);
  // The same of a text that is handed over piece by piece, as LineReader::Source says.
  Trial(Source text, std::vector<std::string> rules);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Whether the program repeats a step, or several kinds of steps, and was still at it where the trace ends. Else
  // why_not() says more.
  bool find_step();
  // What replay needs to go on with that step. Empty where there is nothing to gain, or nothing allowed: why_not().
  std::string schedule();

  // How much of the work since the first step was that of steps: where it is little there may be other kinds of step.
  // What the program has marked is all that there is.
  double explained() const;
  // How often the step came that most of them are.
  std::uint64_t times() const;
  // What there is to say of the step that was found.
  std::string step_text() const;
  const std::string& why_not() const { return why_not_; }

 private:
  struct Found;

  Source text_;
  const std::vector<std::string> rules_;
  std::unique_ptr<Found> found_;
  std::string why_not_;
};

// The schedule of the one step that is marked in the text: as one graph, if it can be. The asynchronous allocations of
// the step at the addresses `lasting` outlive it, and are no ops of it. Empty where there is none:
// `why_not` says more.
std::string region_schedule(const TraceStore::Text& text, const std::vector<std::uint64_t>& lasting,
                            analyzer::KeptRules& rules, std::string& why_not);

// The same of the step at this place, whose ops are the nodes of a graph, and memory that is allocated and released
// among them: it stays where it is, and nobody compares anything at the graph's launches.
struct GraphSchedule {
  struct Written {
    TraceProbe::Range range;  // a whole allocation
    std::string by;           // for people: the first op that may write there
  };
  Schedule schedule;  // one segment
  // That its ops name: whole allocations, by address. Also where there is no schedule; empty where nothing is known.
  std::vector<TraceProbe::Range> memory;
  std::vector<std::uint64_t> nowhere;  // words of its ops that look like addresses and were taken to be none
  std::string text;                    // for people: what is in it
  // Likewise: ops that are ordered with everything since nothing is known of them, each kind of them with why and how
  // often, the most frequent first. Also where there is no schedule.
  std::vector<std::string> unknown;
  // Where its allocations, in their order, would lie best: bytes from the begin of one block. Also where there is no
  // schedule, if anything is known.
  std::vector<std::uint64_t> offsets;
  // Memory that its ops may write, but for what is allocated among them: whole allocations, by address. Also where
  // there is no schedule; nothing where there is an op of which it is not known, or that may be talking to somebody.
  std::optional<std::vector<Written>> writes;
  std::string why_not;  // where there is none, or it frees no two nodes from each other; else empty
};
// `given`: pairs of ops, the one before the other, as the program has put them in order; nothing where all are in the
// order of the step.
using GivenOrder = std::optional<std::vector<std::array<std::uint32_t, 2>>>;
GraphSchedule graph_schedule(const analyzer::GrowingTrace& trace, const analyzer::StepPlace& place,
                             const GivenOrder& given, analyzer::KeptRules& rules);

}  // namespace nimble::shim
