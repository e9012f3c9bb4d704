// What each thread of the program has asked for of its captures, by the C API, and which graphs it has made: whether it
// learns, and the plans for its next captures, which are those of the graphs that it has made.
//
// Owns this, by thread, under one lock, never held while anybody else is called. Any thread; all but any() and
// any_learns() are of the calling one.
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

  // Whether any thread learns; or does, or has plans for captures to come.
  bool any_learns() const;
  bool any() const;

  // --- Learning.
  bool learns() const;
  void learn(bool learns);
  // It will learn: it captures nothing again. Nothing where it learns already.
  void drop_plans();

  // --- Captures.

  // The next captures get their memory by the plans of the graphs that were made since it began to learn, or last.
  // False where nothing is known of any.
  bool capture_again();
  // How the capture that has just begun gets its memory; nothing where nobody has asked.
  struct Request {
    Serve serve = Serve::again;
    Plan plan;
  };
  std::optional<Request> next();
  // A capture has failed: those that were to follow are for a program that goes on as it did the first time.
  void failed();

  // --- Graphs.

  // A graph was made executable; and the plan for its capture, if that was learned from.
  void made(CUgraphExec exec);
  void planned(Plan plan);
  // The last one; null where there is none.
  CUgraphExec last() const;

 private:
  struct OfThread {
    bool learns = false, made_to_learn = false;  // all of `made`
    // For the graphs that it has made; for its next captures, the first of these first. Null where there is none.
    std::list<Plan> made, plans;
    // How many of its next captures are somebody's who has learned, where there is no plan for any of them.
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
