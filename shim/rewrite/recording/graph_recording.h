// What NIMBLE_GRAPHS=rewrite records: the program's calls, by a Recorder into memory; the nodes of graphs, as ops of a
// marked step; and the memory that captures got from the pool.
//
// A recording may begin anywhere in a process's life, with what is allocated then: work that is not in it may have been
// anything. So it is never too late to see what a program does, and an analysis goes through what came since.
//
// One graph is recorded at a time: whoever records nodes holds a lock of the owner's. The rest may come from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/input/trace_reader.h"
#include "analyzer/input/trace_store.h"
#include "analyzer/service.h"
#include "analyzer/step/step_finder.h"
#include "nimble/internal/call.h"
#include "shim/record/recorder.h"
#include "shim/rewrite/graph/program_graph.h"
#include "shim/rewrite/pool/capture_memory.h"
#include "shim/rewrite/recording/captured_ranges.h"

namespace nimble::shim {

class GraphRecording {
 public:
  // `ranges` and `context` must outlive it. The options' store is its own.
  GraphRecording(RecordObservers observers, std::uint64_t limit_bytes, CapturedRanges& ranges, CallContext& context);

  Recorder& recorder() { return recorder_; }
  const TraceStore& store() const { return *store_; }
  // Nothing more is taken, and nobody reads on: whoever wants to begins another.
  bool is_over() const { return store_->full(); }
  // Begins in the middle: with the memory that captures have by now, and behind these calls. Before any call.
  void begin_behind(const std::vector<Call>& calls);
  // Waits until all that came so far is in the store, or that is full. False where it takes too long.
  bool catch_up() { return catch_up_to(recorder_.pushed()); }
  // Nothing is taken any more, and all is forgotten, but for calls that are on their way. Not while anybody records
  // nodes.
  void end() noexcept;

  // A graph's nodes in the recording: where, and which node each op is; kNone for those that are none.
  struct Nodes {
    analyzer::StepPlace place;
    std::vector<std::uint32_t> node;
    GivenOrder given;  // of these ops
    std::string why_not;
  };
  // The nodes as ops, one behind the other: what they do when the graph is launched. With memory, what the capture has
  // allocated and released as ops among them. Waits until they are written and read. `number`: the step's name.
  Nodes nodes(const ProgramGraph& original, const CaptureMemory* memory, std::uint64_t number);
  // What was read. For whoever records nodes.
  const analyzer::GrowingTrace& trace() const { return *trace_; }
  // There is this memory of a capture's: as it is while no graph runs.
  void there(const CapturedRanges::Ranges& ranges);
  // The host has waited for all that was submitted in the context.
  void waited_for(CUcontext context);
  // It has gone back to the driver.
  void gone(const std::vector<MemorySlot>& slots);

 private:
  bool catch_up_to(std::uint64_t records);
  void record(Call call);
  void read_on();

  CapturedRanges& ranges_;
  const std::shared_ptr<TraceStore> store_;
  Recorder recorder_;
  std::unique_ptr<analyzer::GrowingTrace> trace_;  // of the store's first `read_` pieces
  std::size_t read_ = 0;
  std::string why_not_read_;
};

// Why a graph is not analyzed where nothing more is taken.
inline constexpr const char* kFull = "the recording is full (NIMBLE_AUTO_LIMIT)";

}  // namespace nimble::shim
