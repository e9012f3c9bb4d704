// The current recording of NIMBLE_GRAPHS=rewrite, if any, and when another replaces it.
//
// All calls are recorded into memory, up to a limit. A recording that is full is dropped at once, and the next graph
// begins a new one. So does a capture to learn from, if much has been recorded since the last learning. An analysis
// goes through a whole recording; so if nothing was learned, a graph also begins a new one once a little has been
// recorded, since it needs only the allocations. A new recording knows what is allocated, but not what was done.
//
// Owns the recording, the present allocations, and where captures have memory. Two locks, in this order: the analysis
// lock, held while a graph's nodes are recorded and while the recording is replaced; and the lock of the allocation
// history, under which the driver is asked which stream captures. Any thread; which recording was told of a call is
// thread-local.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "replayer/bind/call_history.h"
#include "shim/process/while_used.h"
#include "shim/rewrite/capture/capture_requests.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/pool/capture_memory.h"
#include "shim/rewrite/recording/captured_ranges.h"
#include "shim/rewrite/recording/graph_recording.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

struct RecordingOptions {
  std::uint64_t limit_bytes = 0;
  bool probe = false;          // see what kernels write, in all launches
  bool probe_learned = false;  // in those that are learned from
  std::uint64_t probe_limit_bytes = 0, probe_first = 0;
  std::string trace_path;  // where the recording goes in the end; empty: nowhere
};

class GraphRecordings {
 public:
  using Use = WhileUsed<GraphRecording>::Use;

  // The referenced objects must outlive it.
  GraphRecordings(RecordingOptions options, CallContext& context, CapturesUnderWay& captures,
                  const CaptureRequests& requests, const RewriteLog& log);

  // The current one; empty if there is none.
  Use present() { return recording_.use(); }
  bool is_recording();
  // Drops a full one, unless it is to be written in the end.
  void end_if_full() noexcept;

  // --- The program's calls.

  // The thread makes another call: an earlier one that never returned is over.
  void next_call();
  // It is about to reach the driver, and has. What a recorder answers in its place.
  Answer before(Call& call) noexcept;
  void after(const Call& call, CUresult result);
  // A capture is about to begin: counts it, and keeps recordings that would not know of it from beginning.
  void capture_begins();
  void mark(bool begins, const char* name, std::uint32_t thread);

  // --- Memory of captures.

  // A capture has this memory from now on, as seen while no graph runs. Slots have gone back to the driver.
  void came(const CaptureMemory& memory);
  void gone(const std::vector<MemorySlot>& slots);

  // --- Learning.

  // Waits until everything so far is written: else the result would depend on the writer's progress.
  void catch_up();
  // The calling thread is about to begin learning; or about to end it.
  void learning_begins();
  void learning_ends();
  // Whether it is seen what launches write that are learned from.
  bool probes_learned() const { return options_.probe || options_.probe_learned; }
  // Waits for all work submitted in the current context: observations of memory count from then on. Not during
  // captures, which that may invalidate.
  void wait_for_what_came_before();

  // --- Analyses.

  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(analysis_mutex_); }
  // The recording for a graph's nodes: a new one if much was recorded without learning. With the lock.
  Use for_graph();

  // --- The end.

  // Writes it to its file. Once.
  void finish() noexcept;
  bool forked() noexcept;

 private:
  std::unique_ptr<GraphRecording> make();
  void begin_anew(std::uint64_t unlearned_bytes);
  std::uint64_t room_before_graph() const;
  Use follow(const Call& call, Answer result);
  void write(GraphRecording& recording) const;

  const RecordingOptions options_;
  CallContext& context_;
  CapturesUnderWay& captures_;
  const CaptureRequests& requests_;
  const RewriteLog& log_;
  CapturedRanges captured_;
  WhileUsed<GraphRecording> recording_;          // changed with analysis_mutex_ held
  std::atomic<std::uint64_t> learned_bytes_{0};  // of the current one, when learning last ended
  std::mutex history_mutex_;
  CallHistory history_;
  std::mutex analysis_mutex_;
  std::atomic<bool> finished_{false};
};

}  // namespace nimble::shim
