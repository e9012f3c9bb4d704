// The definitions of a trace: the events that give functions, images, graphs, streams and the rest the ids by which
// calls name them, as they first appear. analyzer/input/trace_reader_definitions.cpp reads them.
//
// Owns the ids, which are the file's own: the shim's tables also number functions that the program never launches. Used
// by the writer's thread alone.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/record/facts/graph_table.h"
#include "shim/record/trace/record_queue.h"

namespace nimble::shim {

class TraceDefinitions {
 public:
  // Appends lines to `out`, which must outlive it.
  explicit TraceDefinitions(std::string& out) : out_(out) {}

  // Each writes a definition if it is new, and returns its id.
  void thread(std::uint32_t thread);
  std::uint32_t stream(const Record& record);
  std::uint32_t event(CUevent event);
  std::uint32_t function(const FunctionInfo& function);
  std::uint32_t image(const ImageInfo& image);
  std::uint32_t context(CUcontext context);
  // Empties the graph, too.
  std::uint32_t graph(GraphInfo& graph);

  // The handle may be reused.
  void stream_ends(std::uint64_t key) { streams_.erase(key); }
  void event_ends(CUevent event) { events_.erase(event); }
  void context_ends(CUcontext context);

  // The ids written so far.
  std::optional<std::uint32_t> stream_of(std::uint64_t key) const;
  std::uint32_t event_of(CUevent event) const { return events_.at(event); }
  std::uint32_t function_of(const FunctionInfo* function) const { return functions_.at(function); }
  std::uint32_t context_of(CUcontext context) const { return contexts_.at(context); }
  // For people, as a JSON string.
  const std::string& name_of(std::uint32_t function) const { return names_[function]; }

 private:
  struct Stream {
    std::uint32_t id = 0;
    CUcontext context = nullptr;
  };

  void line(std::string_view event);
  std::string describe(const FunctionInfo& function);
  void graph_accesses(const GraphInfo& graph);
  void graph_kernels(const GraphInfo& graph);

  std::string& out_;
  std::vector<bool> threads_;  // defined already, by id
  std::unordered_map<const FunctionInfo*, std::uint32_t> functions_;
  std::unordered_map<std::string, std::uint32_t> known_functions_;  // of known images, by their written definition
  std::unordered_map<const ImageInfo*, std::uint32_t> images_;
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::unordered_map<CUevent, std::uint32_t> events_;
  std::unordered_map<CUcontext, std::uint32_t> contexts_;
  std::vector<std::string> names_;  // of functions by id
  std::uint32_t next_stream_ = 0, next_event_ = 0, next_graph_ = 0;
};

}  // namespace nimble::shim
