// An executable graph of the program's and the one that was made of it: which of the two a launch launches, and that
// they never run at the same time, as the driver keeps launches of one executable graph apart.
//
// Behind each launch comes an event, and a launch of the other graph than the one before waits for it: the driver has
// each launch of a graph wait for the one before, so the last one's end is the end of all. One lock is held while a
// launch is made, for which other launches of the same graph alone wait; another guards what is known, never while the
// driver is called. The driver's errors are the program's, but for those of the rewritten graph: then its own is
// launched. Owns its events. Any thread, once it has been described.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/service.h"
#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"
#include "replayer/tune/step_clock.h"
#include "replayer/tune/tuner.h"
#include "shim/rewrite/graph/rewritten_graph.h"
#include "shim/rewrite/graph/touched_memory.h"
#include "shim/rewrite/memory/transient.h"
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
  // Of the rewritten one: its context, how large it is, whose code its kernels are (null: nobody knows of one), the
  // allocations that its nodes name, and their words that look like addresses and lead nowhere; and those among them
  // that were addresses of memory once.
  void describe(CUcontext context, std::uint32_t nodes, std::uint32_t streams, std::vector<const ImageInfo*> images,
                std::vector<TraceProbe::Range> memory, std::vector<std::uint64_t> nowhere,
                std::vector<std::uint64_t> known);

  // Its capture's threads have submitted so many pieces of work past it.
  void goes_without(std::uint64_t strays) { strays_ = strays; }

  // --- From then on.

  // What its nodes may write, but for memory of its own capture; nothing where that is not known, or not any more.
  void writes(std::optional<std::vector<GraphSchedule::Written>> written);
  // Whether that lies in these, as far as it is known; else what does not, for people.
  bool writes_only(const std::vector<TraceProbe::Range>& ranges, std::string& what_else) const;

  // Whether the program's own is launched for good, and may be so by its own call.
  bool passes() const {
    return (kept_.load(std::memory_order_acquire) || own_for_good_.load(std::memory_order_relaxed)) &&
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
  // The driver has been brought into another state (context_bounce.h), be it within the trial: the next launch sees to
  // it, so that nobody waits for one that is being made.
  void driver_settled() { has_settled_.store(true, std::memory_order_relaxed); }
  // The program's own is launched from now on. Whether that is new.
  bool keep(const std::string& why);
  // Code goes; null where nobody knows which.
  void code_goes(const ImageInfo* image);
  // The call releases memory.
  void memory_goes(const Call& call);
  // The call has allocated memory. Why its nodes may now touch the same where they did not before; null: they do not.
  const char* memory_comes(const Call& call) const;
  // Memory is short: the rewritten one goes, where it will not be launched any more. Whether it did.
  bool give_back();
  // The context, or all of them (null), is gone.
  void context_ended(CUcontext context);

  // The memory that has to be there while it runs, once that was asked for; null: all of it always is.
  std::optional<TransientMemory::Shared> transient() const {
    if (all_is_there_.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard lock(mutex_);
    return transient_;
  }
  void uses(std::optional<TransientMemory::Shared> transient) {
    const std::lock_guard lock(mutex_);
    all_is_there_.store(transient && !*transient, std::memory_order_release);
    transient_ = std::move(transient);
  }

  // What is told of it of who looks (replayer/order/onlookers.h).
  const std::shared_ptr<LaunchedWork>& work() const { return work_; }
  // Whether its own is launched from now on.
  bool is_kept() const { return kept_.load(std::memory_order_acquire); }

  std::uint64_t number() const { return number_; }
  CUcontext made_in() const { return made_in_; }
  GraphStatus status(CUgraphExec exec) const;

 private:
  bool follow(const StreamRef& stream);
  void come_behind(const StreamRef& stream);
  void keep_from_launch(const char* why) noexcept;
  std::string news() const;
  void decided();

  const GraphApi& api_;
  const DriverApi& driver_;
  const Tune tune_;
  const std::uint64_t number_;
  CUcontext const made_in_;
  const std::shared_ptr<LaunchedWork> work_;  // with an event behind the last launch
  CUcontext context_ = nullptr;
  std::uint32_t nodes_ = 0, streams_ = 0;
  std::uint64_t strays_ = 0;
  std::vector<const ImageInfo*> images_;

  std::mutex order_;  // held by the one launch that is being made; guards what follows
  RewrittenGraph rewritten_;
  Tuner tuner_;
  StepClock clock_;
  CUevent tried_ = nullptr;             // recorded to see whether a stream takes our events
  std::optional<std::uint64_t> takes_;  // the last stream that did

  std::atomic<bool> all_is_there_{false};
  std::atomic<bool> has_settled_{false};  // since the last launch
  std::atomic<bool> kept_{false}, own_for_good_{false}, last_was_rewritten_{false};
  mutable std::mutex mutex_;  // guards what follows
  TouchedMemory memory_;
  std::optional<std::vector<GraphSchedule::Written>> writes_;
  std::string why_kept_;
  std::optional<TransientMemory::Shared> transient_;
  bool decided_ = false, own_is_faster_ = false;
  double own_us_ = -1, rewritten_us_ = -1;
};

}  // namespace nimble::shim
