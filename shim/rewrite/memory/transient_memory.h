// Memory that captured graphs allocate and release themselves. Its content does not last from one launch to the next:
// the driver backs such memory while a graph runs, and shares the backing among graphs. Here each graph keeps its own,
// until memory is short: then the backing of graphs that do not run goes back to the driver, and their next launch
// restores it.
//
// A graph is known not to run if the program, or give_back(), has waited for its context, and nothing of its capture
// was launched since. While a launch is made, only launches of the same capture wait for it. One lock guards the list,
// never while the driver is called. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "shim/rewrite/memory/backing.h"
#include "shim/rewrite/memory/graph_reserve.h"

namespace nimble::shim {

class TransientMemory {
 public:
  // One capture's transient memory.
  class Part {
   public:
    GraphReserve::Place place() const { return place_; }
    // How much the driver would use for it while the graph runs.
    std::uint64_t in_driver() const { return in_driver_; }

   private:
    friend class TransientMemory;
    std::vector<Backing::Piece> pieces_;
    std::uint64_t bytes_ = 0, in_driver_ = 0;
    GraphReserve::Place place_;
    std::atomic_flag held_;               // by a thread that launches, or changes its backing
    std::atomic<bool> there_{true};       // something does
    std::atomic<bool> stays_{false};      // it is unknown when it is used
    std::atomic<std::uint64_t> used_{0};  // the moment after its last launch; 0: none yet
  };
  using Shared = std::shared_ptr<Part>;

  // Held while a launch is made: keeps the memory backed, if it could be.
  class Held {
   public:
    Held(Held&& other) noexcept : of_(other.of_), part_(std::exchange(other.part_, nullptr)), good_(other.good_) {}
    Held& operator=(Held&&) = delete;
    ~Held();
    bool good() const { return good_; }

   private:
    friend class TransientMemory;
    Held(TransientMemory& of, Part& part, bool good) : of_(&of), part_(&part), good_(good) {}
    TransientMemory* of_;
    Part* part_;
    bool good_;
  };

  // `moments` counts events of memory, so that we can tell what was before a wait. Both must outlive this.
  TransientMemory(Backing& backing, std::atomic<std::uint64_t>& moments) : backing_(backing), moments_(moments) {}

  // Adds pieces of `backing` that have physical memory, and where they are used. `in_driver`: see Part.
  Shared add(std::vector<Backing::Piece> pieces, GraphReserve::Place place, std::uint64_t in_driver);
  // `part` must outlive the result.
  Held launch(Part& part);
  // From now on it is unknown when it is used: it stays backed for good. False if it cannot be.
  bool keep(Part& part);

  // The host has waited for all work submitted in the context before this moment.
  void waited(CUcontext context, std::uint64_t moment);
  // Unbacks parts whose graphs are known not to run, except those being launched. Returns how much.
  std::uint64_t give_back(CUcontext context);
  // How much all parts hold that may ever be given back.
  std::uint64_t all(CUcontext context) const;
  // The context ends, with all users of its memory.
  void context_ends(CUcontext context);

 private:
  struct OfContext {
    std::vector<Shared> parts;
    std::uint64_t waited = 0;
  };

  OfContext parts(CUcontext context) const;
  static bool is_idle(const Part& part, std::uint64_t waited);
  static void hold(Part& part);
  static void let_go(Part& part);
  bool fill(Part& part);

  Backing& backing_;
  std::atomic<std::uint64_t>& moments_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<std::weak_ptr<Part>> parts_;
  std::map<CUcontext, std::uint64_t> waited_;
};

}  // namespace nimble::shim
