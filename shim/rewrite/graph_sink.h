// NIMBLE_GRAPHS=rewrite: graphs that the program makes itself are made once more, without the order that only came from
// their being put on one stream, and launched in place of its own where that is faster.
//
// Meanwhile all calls are recorded into memory, up to a limit. A recording that is full is dropped at once, and the
// next graph begins a new one. So does a capture to learn from, if much has been recorded since somebody last learned.
// An analysis goes through all of a recording; so where nobody has learned, a graph also begins a new one once a little
// has been recorded, of which it needs only what is allocated.
// When the program makes a graph executable, the graph's nodes are recorded, too, as a step that is analyzed there and
// then; what comes out is built beside the program's own executable graph, and each launch of that launches one of the
// two: first either in turn, while both are timed, then the faster. A graph that is changed, or parts of whose memory
// come to lie in one allocation (TouchedMemory), is the program's own again for good, and so is one of which it is not
// known what its nodes touch.
//
// A CallSink: called from any thread. Locks guard the table of graphs, what threads have said, and what is allocated;
// what a graph is launched by guards itself (GraphPair). No lock but a graph's own, and that of an analysis, is held
// while the driver does anything; under the one of what is allocated it is asked which stream captures. Analyses run on
// the program's thread, one at a time. Kept for the life of the process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/call.h"
#include "replayer/bind/call_history.h"
#include "replayer/bind/memory_answers.h"
#include "replayer/driver/driver_api.h"
#include "replayer/replayer.h"
#include "replayer/tune/tuner.h"
#include "shim/process/while_used.h"
#include "shim/rewrite/capture/capture_dry_run.h"
#include "shim/rewrite/capture/capture_pool.h"
#include "shim/rewrite/capture/known_addresses.h"
#include "shim/rewrite/capture/library_memory.h"
#include "shim/rewrite/capture/memory_watch.h"
#include "shim/rewrite/capture/uncaptured_work.h"
#include "shim/rewrite/capture/workspaces.h"
#include "shim/rewrite/graph/graph_pair.h"
#include "shim/rewrite/graph/graph_recording.h"
#include "shim/rewrite/graph/released_memory.h"

namespace nimble::shim {

struct GraphOptions {
  std::vector<std::string> rules;  // files
  std::uint64_t limit_bytes = 0;   // of the recording
  Tune tune = Tune::start;
  bool probe = false;  // see what kernels write, of all launches and not only of those that are learned from
  std::uint64_t probe_limit_bytes = 0, probe_first = 0;
  std::string trace_path;  // where the recording goes in the end; empty: nowhere
  std::function<void(ReplayLog, const std::string&)> log;
};

class GraphSink final : public CallSink {
 public:
  // A capture that goes on. One that an error has spoilt is not active, and then the driver tells neither id nor graph.
  struct Capturing {
    std::uint64_t id = 0;
    CUgraph graph = nullptr;
    bool active = false;
  };

  // `context` must outlive the sink.
  GraphSink(GraphOptions options, CallContext& context);
  ~GraphSink() override;

  std::optional<CUresult> before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  bool give_back(const Call& call) noexcept override;
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  void finish() noexcept override;
  bool forked() noexcept override;

  // From now on the calling thread's launches are compared, and its captures made to learn from; or not any more. False
  // where it was so already.
  bool learn(bool learns);
  // The next captures that this thread begins get their memory as is best for the graphs that it has made executable
  // since it began to learn, or last, each for one, in their order. False where nothing is known of any.
  bool capture_again();
  // What the calling thread does from now on is followed as if the stream captured. False where it rehearses already,
  // or the stream is a legacy default stream, which cannot capture.
  bool rehearse(CUstream stream);
  // Also as if the capture had ended here, and another had begun on the same stream. False where it does not rehearse.
  bool rehearse_part();
  // It ends. Nothing where it does not rehearse.
  struct Rehearsed {
    std::uint64_t strays = 0;  // pieces of work that would have gone past the capture
    std::uint64_t behind = 0;  // of those behind rehearse_part(), that would have gone past the one which began there
  };
  std::optional<Rehearsed> rehearsed();
  // How many captures go on, at most.
  std::uint64_t captures() const {
    return static_cast<std::uint64_t>(std::max(0, captures_.load(std::memory_order_relaxed)));
  }
  // With null: of the one that the calling thread has made executable last. Nothing where it is not known.
  std::optional<GraphStatus> status(CUgraphExec exec);
  // Whether all that its nodes write, by what is known of them, is memory that its own capture has allocated, or cuDNN
  // for itself, or lies in one of these ranges; else it is said what does not. Nothing where the graph is not known.
  std::optional<bool> writes_only(CUgraphExec exec, const std::vector<TraceProbe::Range>& ranges);
  // It is launched as it is from now on; null likewise. False where it is not known.
  bool keep(CUgraphExec exec);
  MemoryWatch& watch() { return watch_; }
  // Whether the calling thread may launch it on the stream: its context is current, and the stream does not capture.
  // Nothing where the graph is not known.
  std::optional<bool> may_launch(CUgraphExec exec, CUstream stream) const;
  // Whether all is done that was put on the stream. No where somebody captures, or it cannot be told.
  bool is_idle(CUstream stream) const;
  // context_bounce.h, where nothing is captured.
  bool settle();
  // The memory that cuBLAS is to work in on this stream, where the program has so much for it there (workspaces.h): a
  // slot, or that. `for_one`: for the product that comes now, and no other. Called outside driver calls.
  std::uint64_t workspace_for(CUstream stream, std::uint64_t workspace, std::uint64_t bytes, bool for_one) noexcept;

 private:
  // A rehearsal that goes on: the number of its capture, its stream, the number of the last part if there is one, and
  // what went past those before it.
  struct Rehearsing {
    std::uint64_t capture = 0, stream = 0;
    std::optional<std::uint64_t> part;
    std::uint64_t behind = 0;
  };

  // What a thread has said, and made.
  struct OfThread {
    bool learns = false, made_to_learn = false;  // all of `made`
    // For the graphs that it has made; for its next captures, the first of these first. Null where there is none.
    std::list<std::shared_ptr<const CapturePlan>> made, plans;
    // How many of its next captures are somebody's who has learned, where there is no plan for any of them.
    std::size_t unplanned = 0;
    CUgraphExec last = nullptr;  // that it has made
    std::optional<Rehearsing> rehearsing;
  };

  // A capture that has begun, by its stream.
  struct Begun {
    std::uint64_t id = 0;
    CUcontext context = nullptr;
    bool to_graph = false;  // of the program's
  };

  // What happens to memory and code while a graph is analyzed, for its life.
  class Missed {
   public:
    explicit Missed(GraphSink& sink);
    ~Missed();
    Missed(const Missed&) = delete;
    Missed& operator=(const Missed&) = delete;
    void tell(GraphPair& graph) const;

   private:
    GraphSink& sink_;
    std::size_t first_ = 0;
  };

  using Recordings = WhileUsed<GraphRecording>;

  std::unique_ptr<GraphRecording> make_recording();
  void record_anew(std::uint64_t unlearned_bytes);
  std::uint64_t room_before_graph() const;
  void end_full_recording() noexcept;
  void wait_for_what_came_before();
  Recordings::Use follow(const Call& call, std::optional<CUresult> result);
  std::optional<CUresult> receive(Call& call);
  std::optional<Capturing> capturing(const Call& call) const;
  std::optional<Capturing> capturing(CUstream stream) const;
  std::size_t count_nodes(CUgraph graph) const;
  void submitted(const Call& call);
  void capture_began(const Call& call, bool good);
  void capture_ending(const Call& call);
  void capture_ended(const Call& call, bool good);
  void forget_captures(const Call& call);
  std::optional<CUresult> allocate(Call& call);
  std::optional<CUresult> answer(Call& call);
  std::optional<CUresult> release(const Call& call);
  CUresult wait_as_release_does() const;
  std::optional<CUresult> add_release(const Call& call);
  void fill(const Call& call);
  void release_workspaces(std::uint64_t capture, const StreamRef& stream);
  std::uint64_t free_memory() const;
  std::uint64_t free_memory_of(CUcontext context) const;
  bool leaves_to_driver(std::uint64_t capture, const CapturePool::Home& home);
  bool let_go_of_rewritten() const;
  std::optional<CUresult> answer_free_memory(Call& call);
  std::optional<CUdevice> device_of(CUcontext context) const;
  void trim(CUcontext context);
  std::uint64_t give_back_transient(CUcontext context);

  std::optional<CUresult> launch(Call& call);
  TransientMemory::Shared transient(GraphPair& graph, CUgraphExec exec);
  GraphPair::Launch launch_with_memory(const Call& call, GraphPair& graph, TransientMemory::Part* part);
  void look(const Call& call);
  void wait_for(const Onlookers::Works& met);
  GraphPair::Launch launch(const Call& call, GraphPair& graph);
  void names(GraphPair& graph, const GraphSchedule& found);
  bool load_driver();
  void rewrite(const Call& call);
  // `flags`: those that its executable graph was made with.
  std::string rewrite(CUgraph graph, std::uint64_t flags, GraphPair& made);
  std::shared_ptr<GraphPair> find(CUgraphExec exec) const;
  CUgraphExec last_of_this_thread();
  std::uint64_t begin_rehearsal(std::uint64_t stream, std::uint32_t thread);
  std::uint64_t end_rehearsal(std::uint64_t number);
  void handle_ends(const Call& call);
  void edited(const Call& call);
  void let_go_of(const Call& call);
  void tell_graphs(const Call& call);
  void tell_launched(CUgraphExec exec, std::uint64_t stream);
  // Slots of captures that have gone are nobody's now.
  void gone(const std::vector<CapturePool::Slot>& slots);
  void tell(GraphPair& graph, const Call& call);
  bool was_waited_for(const Call& call) const;
  void say(const std::string& text) const noexcept;
  void failed(const Call& call, const std::exception& error) const noexcept;

  const GraphOptions options_;
  analyzer::KeptRules rules_;
  CallContext& context_;
  CapturedRanges captured_;
  Recordings recording_;                         // that goes on, if any does; changed with analysis_mutex_ held
  std::atomic<std::uint64_t> learned_bytes_{0};  // of the present one, when somebody ceased to learn
  std::mutex history_mutex_;
  CallHistory history_;
  CapturePool pool_;
  MemoryAnswers answers_;  // of memory of the pool
  Workspaces workspaces_;
  MemoryWatch watch_;
  ReleasedMemory released_;
  KnownAddresses addresses_;
  LibraryMemory library_memory_;
  StrayWork stray_;
  Rehearsals rehearsals_;
  GraphApi api_;           // constant once ready_
  DriverApi driver_;       // likewise
  std::mutex load_mutex_;  // for who has loaded them
  std::atomic<bool> ready_{false};
  std::atomic<int> captures_{0};  // that have begun and not ended, at most
  // Somebody waits for the GPU, and captures begin when that is over. With captures_ in one order for all threads: of
  // the two that come at once one sees the other.
  std::atomic<bool> waits_for_gpu_{false};
  std::mutex analysis_mutex_;  // held while a graph is recorded and analyzed
  std::mutex captures_mutex_;
  std::map<std::uint64_t, Begun> begun_;  // by the stream that a capture has begun on, where alone it can end
  std::mutex threads_mutex_;
  std::map<std::uint32_t, OfThread> threads_;
  Onlookers onlookers_;
  mutable std::shared_mutex graphs_mutex_;
  std::unordered_map<CUgraphExec, std::shared_ptr<GraphPair>> graphs_;
  std::atomic<int> analyses_{0};  // that go on
  std::mutex missed_mutex_;
  std::vector<Call> missed_;                  // while any goes on
  std::atomic<bool> asked_of_graphs_{false};  // the program has asked what memory its graphs have
  std::atomic<std::uint32_t> fills_{0};
  std::atomic<bool> said_short_{false};  // that captures are left to the driver since memory is short
  std::atomic<std::uint64_t> seen_{0}, rewritten_{0}, launches_{0}, steps_marked_{0};
  std::atomic<bool> finished_{false};
};

}  // namespace nimble::shim
