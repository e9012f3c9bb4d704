// The program's executable graph and the one rewritten from it: a launch launches one of the two, and they never run
// concurrently, just as the driver never overlaps launches of one executable graph.
//
// An event is recorded after each launch, and a launch that switches graphs waits for it: the driver orders launches of
// one graph, so the last one's end is the end of all. One lock is held during a launch, and only other launches of the
// same graph wait for it; another guards why the graph is kept and what memory it needs, never while the driver is
// called. The driver's errors go to the program, except those of the rewritten graph: then its own is launched. Owns
// its events, the facts about its nodes (graph_facts.h), and the choice between the two (faster_graph.h). Any thread,
// once it has been described.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"
#include "replayer/tune/tuner.h"
#include "shim/rewrite/graph/faster_graph.h"
#include "shim/rewrite/graph/graph_facts.h"
#include "shim/rewrite/graph/rewritten_graph.h"
#include "shim/rewrite/memory/transient_memory.h"
#include "shim/rewrite/pool/captured_graphs.h"
#include "shim/state/launched_work.h"

namespace nimble::shim {

// The status of one of the program's executable graphs.
struct GraphStatus {
  enum class State : std::uint8_t { kept, trying, own, rewritten };
  CUgraphExec exec = nullptr;
  State state = State::kept;
  std::uint32_t nodes = 0, streams = 0;
  double own_us = -1, rewritten_us = -1;
  std::uint64_t strays = 0;  // pieces of work that its capture's threads have submitted outside it
  std::string text;          // why it is kept
};

class GraphPair {
 public:
  // `number`: for the log. `made_in`: the context that was current when the program's own was instantiated. The
  // referenced objects must outlive it.
  GraphPair(const GraphApi& api, const DriverApi& driver, Tune tune, std::uint64_t number, CUcontext made_in);
  ~GraphPair();
  GraphPair(const GraphPair&) = delete;
  GraphPair& operator=(const GraphPair&) = delete;

  // --- Before it is shared with other threads.

  RewrittenGraph& rewritten() { return rewritten_; }
  // The rewritten one's context and nodes.
  void describe(CUcontext context, GraphFacts::Nodes nodes);
  // Its capture's threads have submitted so many pieces of work outside it.
  void goes_without(std::uint64_t strays) { strays_ = strays; }

  // --- From then on.

  // Facts about its nodes.
  GraphFacts& facts() { return facts_; }

  // Whether the program's own is launched for good, so that its call may pass.
  bool passes() const {
    return (kept_.load(std::memory_order_acquire) || faster_.is_own_for_good()) &&
           !last_was_rewritten_.load(std::memory_order_acquire);
  }
  struct Launch {
    CUresult result = CUDA_SUCCESS;
    bool rewritten = false;
    std::string news;  // for the log, if it has just been decided which one is faster
  };
  // Launches one of the two; its own if its effects may be observed meanwhile. `may_time`: events may be queried.
  Launch launch(CUgraphExec own, const StreamRef& stream, bool may_time, bool looked_at) noexcept;
  void driver_settled() { faster_.driver_settled(); }
  // From now on the program's own is launched. Returns whether that is new.
  bool keep(const std::string& why);
  // Code is unloaded; null: unknown which.
  void code_goes(const ImageInfo* image);
  // Memory is short: destroys the rewritten one if it will not be launched again. Returns whether it did.
  bool give_back();
  // The context, or every context (null), is gone.
  void context_ended(CUcontext context);

  // The memory that a launch has to restore, if it may be gone; null if all of it is always there. Asks `captured`
  // once.
  TransientMemory::Shared transient(CUgraphExec exec, CapturedGraphs& captured) {
    return all_is_there_.load(std::memory_order_acquire) ? nullptr : find_transient(exec, captured);
  }
  // Whether that has been asked.
  bool is_transient_known() const;
  // It was updated from another graph, which has other memory.
  void forget_transient();

  // Its work as observers see it (replayer/onlookers/onlookers.h).
  const std::shared_ptr<LaunchedWork>& work() const { return work_; }
  // Whether its own is launched for good.
  bool is_kept() const { return kept_.load(std::memory_order_acquire); }

  std::uint64_t number() const { return number_; }
  CUcontext made_in() const { return made_in_; }
  GraphStatus status(CUgraphExec exec) const;

 private:
  bool is_of_another_context(const StreamRef& stream) const;
  bool follow(const StreamRef& stream);
  void order_after_last_launch(const StreamRef& stream);
  CUresult launch_elsewhere(CUgraphExec own, const StreamRef& stream) noexcept;
  bool launch_chosen(CUgraphExec own, const StreamRef& stream, bool before, Launch& made);
  void launched(const StreamRef& stream, bool may_time, bool counts, Launch& made);
  void keep_from_launch(const char* why) noexcept;
  TransientMemory::Shared find_transient(CUgraphExec exec, CapturedGraphs& captured);

  const GraphApi& api_;
  const DriverApi& driver_;
  const std::uint64_t number_;
  CUcontext const made_in_;
  const std::shared_ptr<LaunchedWork> work_;  // with an event after the last launch
  CUcontext context_ = nullptr;
  std::uint64_t strays_ = 0;
  GraphFacts facts_;

  std::mutex order_;  // held by the launch that is being made; guards what follows
  RewrittenGraph rewritten_;
  FasterGraph faster_;
  CUevent tried_ = nullptr;             // recorded to test whether a stream accepts our events
  std::optional<std::uint64_t> takes_;  // the last stream that did

  std::atomic<bool> all_is_there_{false};
  std::atomic<bool> kept_{false}, last_was_rewritten_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::string why_kept_;
  std::optional<TransientMemory::Shared> transient_;  // once it was asked for
};

}  // namespace nimble::shim
