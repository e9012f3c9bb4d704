// Memory that the program has released since it began to capture a graph that it still has: the graph's nodes may name
// it, and it may be reallocated before they run. Meanwhile its addresses in the nodes point nowhere, like plain
// numbers.
//
// Kept only while there is such a graph, and up to a limit: for a graph older than what is kept, the answer is unknown.
// One lock, never held while the driver is called. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "shim/rewrite/graph/program_graph.h"

namespace nimble::shim {

class ReleasedMemory {
 public:
  explicit ReleasedMemory(CallContext& context) : context_(context) {}

  // A capture, by its id, and the graph that it has ended in; null if none.
  void began(std::uint64_t capture);
  void ended(std::uint64_t capture, CUgraph graph);
  void destroyed(CUgraph graph);

  // The program is about to release what begins there. Size 0: asks the driver.
  void goes(std::uint64_t address, std::uint64_t size);
  // It has new memory: addresses in it are valid again.
  void came(std::uint64_t address, std::uint64_t size);

  // Whether one of the graph's nodes names some of it; true if unknown.
  bool is_named_by(const ProgramGraph& graph) const;

 private:
  struct Range {
    std::uint64_t number = 0, begin = 0, size = 0;
  };

  CallContext& context_;
  std::atomic<bool> any_{false};                     // captures or graphs
  mutable std::mutex mutex_;                         // guards what follows
  std::map<std::uint64_t, std::uint64_t> captures_;  // how much had been released when it began
  std::map<CUgraph, std::uint64_t> graphs_;          // the same
  std::deque<Range> ranges_;                         // by their number, ascending
  std::uint64_t released_ = 0, forgotten_ = 0;       // how many; up to which
};

}  // namespace nimble::shim
