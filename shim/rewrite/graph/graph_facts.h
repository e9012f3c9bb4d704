// Facts about the nodes of an analyzed graph: how many there are, whose code they run, what memory they name, and what
// they may write; and whether these still hold.
//
// Described once, before other threads see it. One lock guards later changes, never held while the driver is called.
// Any thread.
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
    std::vector<const ImageInfo*> images;       // the code of its kernels; null: of an unknown one
    std::vector<TraceProbe::Range> memory;      // the allocations that its nodes name
    std::vector<std::uint64_t> nowhere, known;  // their words that look like addresses but point nowhere; those of them
                                                // that once were addresses of memory
  };
  void describe(Nodes nodes);
  std::uint32_t nodes() const { return nodes_; }
  std::uint32_t streams() const { return streams_; }

  // Sets what its nodes may write, apart from memory of its own capture; nothing if that is not, or no longer, known.
  void writes(std::optional<std::vector<GraphSchedule::Written>> written);
  // Whether all of that lies in these ranges; else `what_else` names what does not, for the log.
  bool writes_only(const std::vector<TraceProbe::Range>& ranges, std::string& what_else) const;

  // Code is unloaded; null: unknown which. Whether its kernels may be of it.
  bool code_goes(const ImageInfo* image);
  // The call releases memory; or unknown memory is released.
  void memory_goes(const Call& call);
  void any_memory_goes();
  // The call has allocated memory. Why its nodes may now conflict where they did not before; null: they do not.
  const char* memory_comes(const Call& call) const;

 private:
  std::uint32_t nodes_ = 0, streams_ = 0;
  std::vector<const ImageInfo*> images_;
  mutable std::mutex mutex_;  // guards what follows
  TouchedMemory memory_;
  std::optional<std::vector<GraphSchedule::Written>> writes_;
};

}  // namespace nimble::shim
