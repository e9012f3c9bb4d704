// Prepares a graph when the program instantiates it: records its nodes, as a step that is analyzed there and then, and
// builds the result beside the program's own executable graph; from then on the pair is one of the live graphs. If it
// is unknown what the nodes touch, the program's own is used for good.
//
// Owns the rules for analyses, and counts graphs. Analyses run on the program's thread, one at a time, under the
// recordings' analysis lock, the only one held while the driver is called. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/rules/kept_rules.h"
#include "analyzer/service.h"
#include "nimble/internal/call.h"
#include "nimble/internal/evidence.h"
#include "replayer/tune/tuner.h"
#include "shim/rewrite/capture/capture_requests.h"
#include "shim/rewrite/capture/dry_runs.h"
#include "shim/rewrite/graph/graph_pair.h"
#include "shim/rewrite/graph/program_graph.h"
#include "shim/rewrite/live/graph_functions.h"
#include "shim/rewrite/live/graph_onlookers.h"
#include "shim/rewrite/live/live_graphs.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/program_memory/program_memory.h"
#include "shim/rewrite/recording/graph_recordings.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class GraphPreparation {
 public:
  // All of it must outlive this.
  struct Uses {
    CapturePool& pool;
    CaptureRequests& requests;
    DryRuns& dry_runs;
    ProgramMemory& memory;
    GraphRecordings& recordings;
    LiveGraphs& graphs;
    GraphOnlookers& onlookers;
    GraphFunctions& functions;
    const RewriteLog& log;
  };
  // `rules`: files. `trust`: the weakest evidence that is believed.
  GraphPreparation(std::vector<std::string> rules, Evidence trust, Tune tune, const Uses& uses)
      : uses_(uses), trust_(trust), tune_(tune), rules_(std::move(rules)) {}

  // The program has instantiated a graph.
  void instantiated(const Call& call);

 private:
  std::string rewrite(CUgraph graph, std::uint64_t flags, GraphPair& made);
  std::string build(const ProgramGraph& original, const GraphRecording::Nodes& recorded, const GraphSchedule& found,
                    const std::optional<CaptureMemory>& memory, bool own_priorities, GraphPair& made);
  void describe(const ProgramGraph& original, const GraphSchedule& found, const std::optional<CaptureMemory>& memory,
                GraphPair& made) const;
  void tell_onlookers(GraphPair& graph, const GraphSchedule& found);
  void tell_writes(GraphPair& graph, const GraphSchedule& found, const std::optional<CaptureMemory>& memory) const;

  const Uses uses_;
  const Evidence trust_;
  const Tune tune_;
  analyzer::KeptRules rules_;
  const std::shared_ptr<analyzer::KnownKernels> known_ = std::make_shared<analyzer::KnownKernels>();  // one at a time
  std::atomic<std::uint64_t> seen_{0};
  std::once_flag beliefs_told_;
};

}  // namespace nimble::shim
