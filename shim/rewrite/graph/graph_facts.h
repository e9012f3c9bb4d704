// What is known of the nodes of a graph that was analyzed: how many there are, whose code they run, what memory they
// name, and what they may write; and whether that still holds.
//
// Described once, before other threads see it. One lock guards what changes from then on, never held while the driver
// is called. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/service.h"
#include "nimble/internal/call.h"
#include "nimble/internal/trace.h"
#include "shim/rewrite/graph/touched_memory.h"

namespace nimble::shim {

class GraphFacts {
 public:
  struct Nodes {
    std::uint32_t count = 0, streams = 0;       // of the rewritten graph
    std::vector<const ImageInfo*> images;       // whose code its kernels are; null: nobody knows of one
    std::vector<TraceProbe::Range> memory;      // the allocations that its nodes name
    std::vector<std::uint64_t> nowhere, known;  // their words that look like addresses and lead nowhere; those among
                                                // them that were addresses of memory once
  };
  void describe(Nodes nodes);
  std::uint32_t nodes() const { return nodes_; }
  std::uint32_t streams() const { return streams_; }

  // What its nodes may write, but for memory of its own capture; nothing where that is not known, or not any more.
  void writes(std::optional<std::vector<GraphSchedule::Written>> written);
  // Whether that lies in these, as far as it is known; else what does not, for people.
  bool writes_only(const std::vector<TraceProbe::Range>& ranges, std::string& what_else) const;

  // Code goes; null where nobody knows which. Whether its kernels may be of it.
  bool code_goes(const ImageInfo* image);
  // The call releases memory; or nobody can tell which memory goes.
  void memory_goes(const Call& call);
  void any_memory_goes();
  // The call has allocated memory. Why its nodes may now touch the same where they did not before; null: they do not.
  const char* memory_comes(const Call& call) const;

 private:
  std::uint32_t nodes_ = 0, streams_ = 0;
  std::vector<const ImageInfo*> images_;
  mutable std::mutex mutex_;  // guards what follows
  TouchedMemory memory_;
  std::optional<std::vector<GraphSchedule::Written>> writes_;
};

}  // namespace nimble::shim
