// What becomes of the graphs that captures with memory of ours have ended in: who may use a capture's memory, and when
// it is there.
//
// Memory that a graph allocates and does not release is there from the graph's launch to a release of the program's, or
// to a launch of another graph that has captured one; and from its next launch again. Of a graph that the program puts
// into another or clones nobody can tell when it runs: its memory stays.
//
// Changes the captures' table under the table's lock (capture_table.h), which is not held while the driver is called.
// Owns which of the memory may go while no graph runs, and how much the driver would keep in its place. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "shim/rewrite/memory/backing.h"
#include "shim/rewrite/memory/graph_reserve.h"
#include "shim/rewrite/memory/transient.h"
#include "shim/rewrite/pool/capture_table.h"

namespace nimble::shim {

class CapturedGraphs {
 public:
  // `table` must outlive it.
  explicit CapturedGraphs(CaptureTable& table)
      : table_(table), transient_(table.source().backing(), table.former().moments()) {}

  // The capture has ended in this graph; or in none: then `kept` says that the program may have its nodes all the same.
  void ended(std::uint64_t capture, CUgraph graph, bool kept = false);
  void instantiated(CUgraph graph, CUgraphExec exec);
  // What it does comes from this graph now, and from no other any more.
  void updated(CUgraph graph, CUgraphExec exec);
  // The program has launched it on the stream with this key. Where memory was that the launch releases.
  std::vector<std::uint64_t> launched(CUgraphExec exec, std::uint64_t stream);
  void destroyed(CUgraph graph);
  void destroyed(CUgraphExec exec);
  // The graph has become a part of another, or was cloned.
  void shared(CUgraph graph);
  void shared(CUgraphExec exec);

  TransientMemory& transient() { return transient_; }
  GraphReserve& reserve() { return reserve_; }
  // The host has waited for all that was submitted in the context before this moment, as FormerMemory has it.
  void waited(CUcontext context, std::uint64_t moment) {
    transient_.waited(context, moment);
    reserve_.waited(context, moment);
  }
  // The reserve gives back what no graph uses.
  void trim(CUcontext context, CUdevice device);
  void context_ends(CUcontext context) {
    transient_.context_ends(context);
    reserve_.context_ends(context);
  }
  // What the graph that this one was made of has allocated and released while it was captured, each time that it was;
  // without what is not to go.
  std::vector<TransientMemory::Shared> transient_of(CUgraphExec exec);
  // That of this graph, or of the one that this was made of, from now on is not. False where it cannot be had.
  bool keep(CUgraph graph, CUgraphExec exec);

 private:
  bool released_by_launch(std::uint64_t address);
  std::vector<Backing::Piece> released_pieces(const CaptureSlots& slots);
  std::optional<GraphReserve::Place> place_of(const CaptureSlots& slots);
  void tell_left(GraphReserve::Place place);
  static std::uint64_t released_in_driver(const CaptureSlots& slots);

  CaptureTable& table_;
  TransientMemory transient_;
  GraphReserve reserve_;
};

}  // namespace nimble::shim
