// The recording of NIMBLE_GRAPHS=rewrite that goes on, if any does, and when another takes its place.
//
// All calls are recorded into memory, up to a limit. A recording that is full is dropped at once, and the next graph
// begins a new one. So does a capture to learn from, if much has been recorded since somebody last learned. An analysis
// goes through all of a recording; so where nobody has learned, a graph also begins a new one once a little has been
// recorded, of which it needs only what is allocated. A new one knows what is allocated, but not what was done.
//
// Owns the recording, what is allocated by now, and where captures have memory. Two locks, in this order: that of
// analyses, which whoever records a graph's nodes holds all the time, and while it the recording is replaced; and that
// of what is allocated, under which the driver is asked which stream captures. Any thread; that a call was told to a
// recording is kept with its thread.
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
  bool probe = false;  // see what kernels write, of all launches and not only of those that are learned from
  std::uint64_t probe_limit_bytes = 0, probe_first = 0;
  std::string trace_path;  // where the recording goes in the end; empty: nowhere
};

class GraphRecordings {
 public:
  using Use = WhileUsed<GraphRecording>::Use;

  // What the references name must outlive it.
  GraphRecordings(RecordingOptions options, CallContext& context, CapturesUnderWay& captures,
                  const CaptureRequests& requests, const RewriteLog& log);

  // The one that goes on; empty where none does.
  Use present() { return recording_.use(); }
  bool is_recording();
  // A full one is of no more use to anybody, but for whoever wants to see in the end what it was.
  void end_if_full() noexcept;

  // --- The program's calls.

  // The thread makes another call: one that has never come back is over.
  void next_call();
  // It is about to reach the driver, and has. What a recorder answers in its place.
  Answer before(Call& call) noexcept;
  void after(const Call& call, CUresult result);
  // A capture is about to begin: it is counted, and no recording begins that would not know of it.
  void capture_begins();
  void mark(bool begins, const char* name, std::uint32_t thread);

  // --- Memory of captures.

  // There is this of a capture's from now on, as it is while no graph runs. It has gone back to the driver.
  void came(const CaptureMemory& memory);
  void gone(const std::vector<MemorySlot>& slots);

  // --- Learning.

  // Waits until all that came so far is written, or it would go by how far the writer has come.
  void catch_up();
  // The calling thread is about to learn; it is about to learn no more, and still does.
  void learning_begins();
  void learning_ends();
  // The host waits for all that was submitted in the current context: what is seen of memory counts from then on. Not
  // while anybody captures, whose capture may not outlive that.
  void wait_for_what_came_before();

  // --- Analyses.

  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(analysis_mutex_); }
  // The one in which a graph's nodes are recorded: a new one where much was recorded that says nothing. With the lock.
  Use for_graph();

  // --- The end.

  // Writes it down. Once.
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
  std::atomic<std::uint64_t> learned_bytes_{0};  // of the present one, when somebody ceased to learn
  std::mutex history_mutex_;
  CallHistory history_;
  std::mutex analysis_mutex_;
  std::atomic<bool> finished_{false};
};

}  // namespace nimble::shim
