// NIMBLE_GRAPHS=rewrite: graphs that the program makes itself are made once more, without the order that only came from
// their being put on one stream, and launched in place of its own where that is faster.
//
// Meanwhile all calls are recorded into memory (recording/). When the program makes a graph executable, the graph is
// analyzed there and then, and built once more beside its own (graph_preparation.h); each launch of that launches one
// of the two (graph_launcher.h). A graph that is changed, or parts of whose memory come to lie in one allocation
// (graph/touched_memory.h), is the program's own again for good, and so is one of which it is not known what its nodes
// touch (live/). What the program allocates while it captures is not the driver's, but of a pool (pool/, allocate/).
//
// A CallSink, called from any thread: it hands each call on to those who own what the call is about, in their order,
// and what the C API and cuBLAS's door ask of it likewise. Owns them, and nothing that needs a lock; what a call that
// is on its way has shown is kept with its thread. No lock but a graph's own, and that of an analysis, is held while
// the driver does anything; under the one of what is allocated it is asked which stream captures. Kept for the life of
// the process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
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
  std::vector<std::string> rules;  // files
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

  // --- What the calling thread captures, or is to capture.

  // From now on its launches are compared, and its captures made to learn from; or not any more. False where it was so
  // already.
  bool learn(bool learns);
  // The next captures that it begins get their memory as is best for the graphs that it has made executable since it
  // began to learn, or last, each for one, in their order. False where nothing is known of any.
  bool capture_again() { return requests_.capture_again(); }
  // What it does is followed as if a stream captured (DryRuns).
  DryRuns& dry_runs() { return dry_runs_; }
  // How many captures go on, at most, of any thread.
  std::uint64_t captures() const { return static_cast<std::uint64_t>(std::max(0, captures_.count())); }
  // The memory that cuBLAS is to work in on a stream (WorkspaceSlots). Called outside driver calls.
  WorkspaceSlots& workspaces() { return workspaces_; }

  // --- Its executable graphs. Nothing, or false, where a graph is not known; null stands for the one that the calling
  // thread has made last.

  std::optional<GraphStatus> status(CUgraphExec exec);
  // Whether all that its nodes write, by what is known of them, is memory that its own capture has allocated, or cuDNN
  // for itself, or lies in one of these ranges; else it is said what does not. No null.
  std::optional<bool> writes_only(CUgraphExec exec, const std::vector<TraceProbe::Range>& ranges);
  // It is launched as it is from now on.
  bool keep(CUgraphExec exec);
  // GraphLauncher::may_launch().
  std::optional<bool> may_launch(CUgraphExec exec, CUstream stream) const { return launcher_.may_launch(exec, stream); }

  // --- The rest.

  MemoryWatch& watch() { return memory_.watch(); }
  // Whether all is done that was put on the stream. No where somebody captures, or it cannot be told.
  bool is_idle(CUstream stream) const;
  // context_bounce.h, where nothing is captured.
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
