// What each thread of the program has requested for its captures by the C API, and which graphs it has made: whether it
// learns, and the plans for its next captures, which come from the graphs that it has made.
//
// Owns this, by thread, under one lock, never held while other code is called. Any thread; all but any() and
// any_learns() concern the calling one.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "shim/rewrite/pool/capture_memory.h"
#include "shim/rewrite/pool/capture_slots.h"

namespace nimble::shim {

class CaptureRequests {
 public:
  using Plan = std::shared_ptr<const CapturePlan>;

  // Whether any thread learns; whether any learns or has plans for later captures.
  bool any_learns() const;
  bool any() const;

  // --- Learning.
  bool learns() const;
  void learn(bool learns);
  // The thread is about to learn, and will not capture again by plans. No effect if it learns already.
  void drop_plans();

  // --- Captures.

  // The next captures get their memory by the plans of the graphs made since the thread began to learn, now or last.
  // False if there is no plan at all.
  bool capture_again();
  // How the capture that has just begun gets its memory; nothing if nothing was requested.
  struct Request {
    Serve serve = Serve::again;
    Plan plan;
  };
  std::optional<Request> next();
  // A capture has failed: the remaining plans assume a program that continues as it did the first time.
  void failed();

  // --- Graphs.

  // A graph was made executable; and the plan for its capture, if that was learned from.
  void made(CUgraphExec exec);
  void planned(Plan plan);
  // The last one; null if there is none.
  CUgraphExec last() const;

 private:
  struct OfThread {
    bool learns = false, made_to_learn = false;  // all of `made`
    // For the graphs that it has made; for its next captures, in order. Null if there is none.
    std::list<Plan> made, plans;
    // How many of its next captures follow learning, although there are no plans for them.
    std::size_t unplanned = 0;
    CUgraphExec last = nullptr;  // that it has made

    bool wants_more() const { return learns || !plans.empty(); }
  };

  OfThread& mine();
  const OfThread* find() const;

  mutable std::mutex mutex_;  // guards what follows
  std::map<std::uint32_t, OfThread> threads_;
};

}  // namespace nimble::shim
