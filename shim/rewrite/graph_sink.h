// NIMBLE_GRAPHS=rewrite: rebuilds the program's own graphs without the order that only came from capturing on one
// stream, and launches the results in their place if that is faster.
//
// Meanwhile all calls are recorded into memory (recording/). When the program instantiates a graph, it is analyzed
// there and then, and rebuilt beside its own (graph_preparation.h); each launch launches one of the two
// (graph_launcher.h). If a graph is changed, or separate memory of it comes to lie in one allocation
// (graph/touched_memory.h), its own is used again for good, and so it is if it is unknown what its nodes touch (live/).
// What the program allocates while it captures comes from a pool instead of the driver (pool/, allocate/).
//
// A CallSink, called from any thread: it passes each call to the parts that own what the call concerns, in their order,
// and likewise requests of the C API and of cuBLAS's wrappers. Owns these parts, and nothing that needs a lock; the
// state of a call in flight is thread-local. Only a graph's own lock and the analysis lock are held while the driver is
// called; under the lock of the allocation history only which stream captures is queried. Kept for the life of the
// process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/evidence.h"
#include "replayer/tune/tuner.h"
#include "shim/rewrite/allocate/capture_allocator.h"
#include "shim/rewrite/allocate/memory_fill.h"
#include "shim/rewrite/allocate/memory_return.h"
#include "shim/rewrite/allocate/memory_shortage.h"
#include "shim/rewrite/allocate/workspace_slots.h"
#include "shim/rewrite/capture/capture_requests.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/capture/dry_runs.h"
#include "shim/rewrite/graph/graph_pair.h"
#include "shim/rewrite/graph_launcher.h"
#include "shim/rewrite/graph_preparation.h"
#include "shim/rewrite/live/graph_functions.h"
#include "shim/rewrite/live/graph_onlookers.h"
#include "shim/rewrite/live/live_graphs.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/program_memory/program_memory.h"
#include "shim/rewrite/recording/graph_recordings.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

struct GraphOptions : RecordingOptions {
  std::vector<std::string> rules;    // files
  Evidence trust = Evidence::exact;  // the weakest evidence that is believed
  Tune tune = Tune::start;
  RewriteLog::Write log;
};

class GraphSink final : public CallSink {
 public:
  // `context` must outlive the sink.
  GraphSink(GraphOptions options, CallContext& context);
  ~GraphSink() override;

  // --- The program's driver calls.

  Answer before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  bool give_back(const Call& call) noexcept override { return memory_return_.give_back(call); }
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  void finish() noexcept override { recordings_.finish(); }
  bool forked() noexcept override { return recordings_.forked(); }

  // --- What the calling thread captures, or is about to capture.

  // Starts or stops learning: comparing its launches, if what is observed is believed, and learning from its captures.
  // False if nothing changes.
  bool learn(bool learns);
  // The next captures that it begins get their memory by the plans of the graphs that it has instantiated since it
  // began to learn, now or last, one each, in order. False if there is no plan at all.
  bool capture_again() { return requests_.capture_again(); }
  // Rehearsals: follows calls as if a stream captured (DryRuns).
  DryRuns& dry_runs() { return dry_runs_; }
  // How many captures are under way, at most, in all threads.
  std::uint64_t captures() const { return static_cast<std::uint64_t>(std::max(0, captures_.count())); }
  // The workspaces for cuBLAS on a stream (WorkspaceSlots). Called outside driver calls.
  WorkspaceSlots& workspaces() { return workspaces_; }

  // --- Its executable graphs. Nothing, or false, if a graph is not known; null means the one that the calling thread
  // has made last.

  std::optional<GraphStatus> status(CUgraphExec exec);
  // Whether all memory that its nodes are known to write was allocated by its own capture, or by cuDNN for itself, or
  // lies in one of these ranges; else logs what does not. Not null.
  std::optional<bool> writes_only(CUgraphExec exec, const std::vector<TraceProbe::Range>& ranges);
  // From now on the program's own is launched.
  bool keep(CUgraphExec exec);
  // GraphLauncher::may_launch().
  std::optional<bool> may_launch(CUgraphExec exec, CUstream stream) const { return launcher_.may_launch(exec, stream); }

  // --- The rest.

  MemoryWatch& watch() { return memory_.watch(); }
  // Whether all work on the stream is done. False during captures, or if it cannot be told.
  bool is_idle(CUstream stream) const;
  // Does context_bounce.h's settle(), unless a capture is under way.
  bool settle();

 private:
  void hear(const Call& call);
  Answer receive(Call& call);
  void has_done(const Call& call);
  void capture_began(const Call& call, bool good);
  void capture_ended(const Call& call, bool good);
  void forget_captures(const Call& call);
  void edited(const Call& call);
  void has_edited(const Call& call);
  void handle_ends(const Call& call);
  void let_go_of(const Call& call);

  CallContext& context_;
  const RewriteLog log_;
  GraphFunctions functions_;
  CapturesUnderWay captures_;
  CaptureRequests requests_;
  DryRuns dry_runs_;
  CapturePool pool_;
  ProgramMemory memory_;
  GraphRecordings recordings_;
  LiveGraphs graphs_;
  GraphOnlookers onlookers_;
  MemoryShortage shortage_;
  CaptureAllocator allocator_;
  WorkspaceSlots workspaces_;
  MemoryReturn memory_return_;
  MemoryFill fill_;
  GraphPreparation preparation_;
  GraphLauncher launcher_;
  std::atomic<std::uint64_t> steps_marked_{0};
};

}  // namespace nimble::shim
