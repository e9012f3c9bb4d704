// What captured graphs allocate and release themselves. Nothing of it lasts from one launch to the next: graphs of the
// driver's own have physical memory for it while they run, and share it with others. Here each keeps its own, until
// memory is short: then what lies behind the addresses of graphs that do not run goes back to the driver, and comes
// back with their next launch.
//
// A graph is known not to run where the program has waited for its context, or give_back() has, and nothing of its
// capture was launched since. A launch keeps others of the same capture waiting while it is made, and nobody else. One
// lock guards the list, never while the driver is called. Any thread.
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
  // That of one capture.
  class Part {
   public:
    GraphReserve::Place place() const { return place_; }
    // How much the driver would have for it while the graph runs.
    std::uint64_t in_driver() const { return in_driver_; }

   private:
    friend class TransientMemory;
    std::vector<Backing::Piece> pieces_;
    std::uint64_t bytes_ = 0, in_driver_ = 0;
    GraphReserve::Place place_;
    std::atomic_flag held_;               // by who launches, or changes what lies behind it
    std::atomic<bool> there_{true};       // something does
    std::atomic<bool> stays_{false};      // nobody knows when it is used
    std::atomic<std::uint64_t> used_{0};  // the moment behind its last launch; 0: there was none
  };
  using Shared = std::shared_ptr<Part>;

  // While a launch is made: keeps the memory there, if it could be had.
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

  // `moments`: counts what happens to memory, so that it can be told what was before a wait. Both must outlive this.
  TransientMemory(Backing& backing, std::atomic<std::uint64_t>& moments) : backing_(backing), moments_(moments) {}

  // Pieces of `backing` that have physical memory, and where they are used. `in_driver`: see Part.
  Shared add(std::vector<Backing::Piece> pieces, GraphReserve::Place place, std::uint64_t in_driver);
  // `part` must outlive what is returned.
  Held launch(Part& part);
  // From now on nobody knows when it is used: it is there for good. False where it cannot be had.
  bool keep(Part& part);

  // The host has waited for all that was submitted in the context before this moment.
  void waited(CUcontext context, std::uint64_t moment);
  // Who is known not to run gives its memory back, but for who is being launched. How much that was.
  std::uint64_t give_back(CUcontext context);
  // How much all have that ever may.
  std::uint64_t all(CUcontext context) const;
  // It ends, with whoever used its memory.
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
