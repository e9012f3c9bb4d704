// An executable graph of the program's and the one that was made of it: a launch launches one of the two, and they
// never run at the same time, as the driver keeps launches of one executable graph apart.
//
// Behind each launch comes an event, and a launch of the other graph than the one before waits for it: the driver has
// each launch of a graph wait for the one before, so the last one's end is the end of all. One lock is held while a
// launch is made, for which other launches of the same graph alone wait; another guards why it is kept and what memory
// it needs, never while the driver is called. The driver's errors are the program's, but for those of the rewritten
// graph: then its own is launched. Owns its events, what is known of its nodes (graph_facts.h), and the choice between
// the two (graph_choice.h). Any thread, once it has been described.
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
#include "shim/rewrite/graph/graph_choice.h"
#include "shim/rewrite/graph/graph_facts.h"
#include "shim/rewrite/graph/rewritten_graph.h"
#include "shim/rewrite/memory/transient.h"
#include "shim/rewrite/pool/captured_graphs.h"
#include "shim/state/launched_work.h"

namespace nimble::shim {

// What is known of an executable graph of the program's.
struct GraphStatus {
  enum class State : std::uint8_t { kept, trying, own, rewritten };
  CUgraphExec exec = nullptr;
  State state = State::kept;
  std::uint32_t nodes = 0, streams = 0;
  double own_us = -1, rewritten_us = -1;
  std::uint64_t strays = 0;  // pieces of work that its capture's threads have submitted past it
  std::string text;          // why it is kept
};

class GraphPair {
 public:
  // `number`: for people. `made_in`: the context that was current when the program's own was made executable. What the
  // references name must outlive it.
  GraphPair(const GraphApi& api, const DriverApi& driver, Tune tune, std::uint64_t number, CUcontext made_in);
  ~GraphPair();
  GraphPair(const GraphPair&) = delete;
  GraphPair& operator=(const GraphPair&) = delete;

  // --- Before it is shared with other threads.

  RewrittenGraph& rewritten() { return rewritten_; }
  // The rewritten one's context and nodes.
  void describe(CUcontext context, GraphFacts::Nodes nodes);
  // Its capture's threads have submitted so many pieces of work past it.
  void goes_without(std::uint64_t strays) { strays_ = strays; }

  // --- From then on.

  // What its nodes may write.
  GraphFacts& facts() { return facts_; }

  // Whether the program's own is launched for good, and may be so by its own call.
  bool passes() const {
    return (kept_.load(std::memory_order_acquire) || choice_.is_own_for_good()) &&
           !last_was_rewritten_.load(std::memory_order_acquire);
  }
  struct Launch {
    CUresult result = CUDA_SUCCESS;
    bool rewritten = false;
    std::string news;  // for people, where it has just been decided which is the faster one
  };
  // Launches one of the two; its own where somebody may look meanwhile. `may_time`: the driver may be asked about
  // events.
  Launch launch(CUgraphExec own, const StreamRef& stream, bool may_time, bool looked_at) noexcept;
  void driver_settled() { choice_.driver_settled(); }
  // The program's own is launched from now on. Whether that is new.
  bool keep(const std::string& why);
  // Code goes; null where nobody knows which.
  void code_goes(const ImageInfo* image);
  // Memory is short: the rewritten one goes, where it will not be launched any more. Whether it did.
  bool give_back();
  // The context, or all of them (null), is gone.
  void context_ended(CUcontext context);

  // The memory that a launch has to bring back, where that may be gone; null where all of it always is there.
  // `captured` is asked once.
  TransientMemory::Shared transient(CUgraphExec exec, CapturedGraphs& captured) {
    return all_is_there_.load(std::memory_order_acquire) ? nullptr : find_transient(exec, captured);
  }
  // Whether that was asked.
  bool is_transient_known() const;
  // It does what another graph says now, whose memory that is.
  void forget_transient();

  // What is told of it of who looks (replayer/order/onlookers.h).
  const std::shared_ptr<LaunchedWork>& work() const { return work_; }
  // Whether its own is launched from now on.
  bool is_kept() const { return kept_.load(std::memory_order_acquire); }

  std::uint64_t number() const { return number_; }
  CUcontext made_in() const { return made_in_; }
  GraphStatus status(CUgraphExec exec) const;

 private:
  bool is_of_another_context(const StreamRef& stream) const;
  bool follow(const StreamRef& stream);
  void come_behind(const StreamRef& stream);
  CUresult launch_elsewhere(CUgraphExec own, const StreamRef& stream) noexcept;
  bool launch_chosen(CUgraphExec own, const StreamRef& stream, bool before, Launch& made);
  void launched(const StreamRef& stream, bool may_time, bool counts, Launch& made);
  void keep_from_launch(const char* why) noexcept;
  TransientMemory::Shared find_transient(CUgraphExec exec, CapturedGraphs& captured);

  const GraphApi& api_;
  const DriverApi& driver_;
  const std::uint64_t number_;
  CUcontext const made_in_;
  const std::shared_ptr<LaunchedWork> work_;  // with an event behind the last launch
  CUcontext context_ = nullptr;
  std::uint64_t strays_ = 0;
  GraphFacts facts_;

  std::mutex order_;  // held by the one launch that is being made; guards what follows
  RewrittenGraph rewritten_;
  GraphChoice choice_;
  CUevent tried_ = nullptr;             // recorded to see whether a stream takes our events
  std::optional<std::uint64_t> takes_;  // the last stream that did

  std::atomic<bool> all_is_there_{false};
  std::atomic<bool> kept_{false}, last_was_rewritten_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::string why_kept_;
  std::optional<TransientMemory::Shared> transient_;  // once it was asked for
};

}  // namespace nimble::shim
