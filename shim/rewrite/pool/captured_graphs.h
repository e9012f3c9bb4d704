// Tracks the graphs of captures that use Nimble's memory: what may use a capture's memory, and when it is live.
//
// Memory that a graph allocates and does not release is live from the graph's launch until the program releases it, or
// launches another graph that captured a release; and again from its next launch. If the program adds a graph to
// another or clones it, it is unknown when it runs: its memory stays.
//
// Changes the captures' table under the table's lock (capture_table.h), which is not held while the driver is called.
// Owns which memory may be unbacked while no graph runs, and how much the driver would keep instead. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "shim/rewrite/memory/backing.h"
#include "shim/rewrite/memory/graph_reserve.h"
#include "shim/rewrite/memory/transient_memory.h"
#include "shim/rewrite/pool/capture_table.h"

namespace nimble::shim {

class CapturedGraphs {
 public:
  // `table` must outlive it.
  explicit CapturedGraphs(CaptureTable& table)
      : table_(table), transient_(table.source().backing(), table.former().moments()) {}

  // The capture has ended in this graph; or in none: then `kept` says that the program may still have its nodes.
  void ended(std::uint64_t capture, CUgraph graph, bool kept = false);
  void instantiated(CUgraph graph, CUgraphExec exec);
  // The executable graph was updated from this graph, and no longer depends on another.
  void updated(CUgraph graph, CUgraphExec exec);
  // The program has launched it on the stream with this key. Returns the addresses of memory that the launch releases.
  std::vector<std::uint64_t> launched(CUgraphExec exec, std::uint64_t stream);
  void destroyed(CUgraph graph);
  void destroyed(CUgraphExec exec);
  // The graph has become part of another, or was cloned.
  void shared(CUgraph graph);
  void shared(CUgraphExec exec);

  TransientMemory& transient() { return transient_; }
  GraphReserve& reserve() { return reserve_; }
  // The host has waited for all work submitted in the context before this moment, as in FormerMemory.
  void waited(CUcontext context, std::uint64_t moment) {
    transient_.waited(context, moment);
    reserve_.waited(context, moment);
  }
  // The reserve returns what no graph uses.
  void trim(CUcontext context, CUdevice device);
  void context_ends(CUcontext context) {
    transient_.context_ends(context);
    reserve_.context_ends(context);
  }
  // The memory that was allocated and released in each capture of the graph that this one was made of; without memory
  // that must stay.
  std::vector<TransientMemory::Shared> transient_of(CUgraphExec exec);
  // From now on that of this graph, or of the one that this was made of, must stay. False if it cannot be backed.
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
