// What NIMBLE_GRAPHS=rewrite records: the program's calls, by a Recorder into memory; the nodes of graphs, as ops of a
// marked step; and the memory that captures got from the pool.
//
// A recording may begin at any time, with the allocations of that moment: earlier work may have been anything. So it is
// never too late to see what a program does, and an analysis covers only what came since.
//
// One graph is recorded at a time: the thread that records nodes holds a lock of the owner. The rest may come from any
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
  // `ranges` and `context` must outlive it. It owns the options' store.
  GraphRecording(RecordObservers observers, std::uint64_t limit_bytes, CapturedRanges& ranges, CallContext& context);

  Recorder& recorder() { return recorder_; }
  const TraceStore& store() const { return *store_; }
  // Nothing more is recorded or read: for more, begin another recording.
  bool is_over() const { return store_->full(); }
  // Begins in the middle: with the present memory of captures, and after these calls. Before any call.
  void begin_after(const std::vector<Call>& calls);
  // Waits until everything so far is in the store, or the store is full. False if that takes too long.
  bool catch_up() { return catch_up_to(recorder_.pushed()); }
  // Ends the recording and forgets everything, except calls in flight. Not while a thread records nodes.
  void end() noexcept;

  // A graph's nodes in the recording: where, and which node each op is; kNone for ops that are not nodes.
  struct Nodes {
    analyzer::StepPlace place;
    std::vector<std::uint32_t> node;
    GivenOrder given;  // of these ops
    std::string why_not;
  };
  // Records the nodes as a sequence of ops: what they do when the graph is launched. With memory, the capture's
  // allocations and releases as ops among them. Waits until they are written and read. `number`: the step's name.
  Nodes nodes(const ProgramGraph& original, const CaptureMemory* memory, std::uint64_t number);
  // What was read. For the thread that records nodes.
  const analyzer::GrowingTrace& trace() const { return *trace_; }
  // A capture has this memory: as seen while no graph runs.
  void there(const CapturedRanges::Ranges& ranges);
  // The host has waited for all work submitted in the context.
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

// Why a graph is not analyzed when nothing more is recorded.
inline constexpr const char* kFull = "the recording is full (NIMBLE_AUTO_LIMIT)";

}  // namespace nimble::shim
