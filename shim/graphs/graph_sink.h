// NIMBLE_GRAPHS=rewrite: graphs that the program makes itself are made once more, without the order that only came from
// their being put on one stream, and launched in place of its own where that is faster.
//
// All is recorded into memory meanwhile. When the program makes a graph executable, the graph's nodes are recorded,
// too, as a step that is analyzed there and then; what comes out is built beside the program's own executable graph,
// and each launch of that launches one of the two: first either in turn, while both are timed, then the faster. A graph
// that is changed, or whose memory is released, is the program's own again for good, and so is one of which it is not
// known what its nodes touch.
//
// A CallSink: called from any thread. A lock guards the table of graphs, and one in each graph how it is launched;
// analyses run on the program's thread, one at a time, with neither. Kept for the life of the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/call.h"
#include "replayer/driver_api.h"
#include "replayer/replayer.h"
#include "replayer/step_clock.h"
#include "replayer/tuner.h"
#include "shim/graphs/capture_pool.h"
#include "shim/graphs/rewritten_graph.h"
#include "shim/recorder.h"
#include "shim/trace_store.h"

namespace nimble::shim {

struct GraphOptions {
  std::vector<std::string> rules;  // files
  std::uint64_t limit_bytes = 0;   // of the recording
  Tune tune = Tune::start;
  std::uint64_t reuse_from = 0;  // bytes: see CapturePool
  bool probe = false;  // see what kernels write, of the first `probe_first` launches and of those that are learned from
  std::uint64_t probe_limit_bytes = 0, probe_first = 0;
  std::string trace_path;  // where the recording goes in the end; empty: nowhere
  std::function<void(ReplayLog, const std::string&)> log;
};

class GraphSink final : public CallSink {
 public:
  // `context` must outlive the sink.
  GraphSink(GraphOptions options, CallContext& context);
  ~GraphSink() override;

  std::optional<CUresult> before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  void finish() noexcept override;
  bool forked() noexcept override;

 private:
  struct Graph;

  std::optional<CUresult> receive(Call& call);
  bool is_capturing(const Call& call, std::uint64_t* id = nullptr) const;
  std::optional<CUresult> allocate(Call& call);
  std::optional<CUresult> release(const Call& call);
  void forget(const std::vector<CapturePool::Slot>& gone);
  void record(Call call);

  std::optional<CUresult> launch(Call& call);
  void rewrite(const Call& call);
  std::string rewrite(CUgraph graph, Graph& made);
  std::shared_ptr<Graph> find(CUgraphExec exec) const;
  void edited(const Call& call);
  void let_go_of(const Call& call);

  const GraphOptions options_;
  CallContext& context_;
  const std::shared_ptr<TraceStore> store_;
  Recorder recorder_;
  CapturePool pool_;
  GraphApi api_;      // constant once ready_
  DriverApi driver_;  // likewise
  std::once_flag load_;
  std::atomic<bool> ready_{false};
  std::atomic<int> captures_{0};  // that have begun and not ended, at most
  std::mutex analysis_mutex_;     // held while a graph is recorded and analyzed
  mutable std::shared_mutex graphs_mutex_;
  std::unordered_map<CUgraphExec, std::shared_ptr<Graph>> graphs_;
  std::atomic<std::uint64_t> seen_{0}, rewritten_{0}, launches_{0}, steps_marked_{0};
  std::atomic<bool> finished_{false};
};

}  // namespace nimble::shim
